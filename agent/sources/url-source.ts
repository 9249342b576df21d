/**
 * Reports the static pods of a URL, which serves one pod or a list. The URL is requested at a fixed interval with the ETag of
 * the last response. Redirects are followed, except from TLS to plain text. The configured headers are sent to the host of the
 * flag only.
 */
import type { IncomingMessage } from 'node:http';
import { createDialer, type Dialer, redirectTarget } from '../../api/http/dialer.ts';
import type { YamlParser } from '../../api/codec/yaml-thread.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { periodically } from '../../api/machinery/periodic.ts';
import { GatheredBytes } from '../../api/machinery/gathered-bytes.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import type { Pod } from '../base/model/pod.ts';
import type { PodSource } from './pod-source.ts';
import { type PodReader, readManifest } from './static-pod.ts';

interface UrlSourceOptions {
  readonly url: string;
  /** The value of `--manifest-url-header`. */
  readonly headers: Readonly<Record<string, string>>;
  /** The value of `--http-check-frequency`. */
  readonly checkMs: number;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly yaml: YamlParser;
  readonly reader: PodReader;
  /** Replaces the dialer. */
  readonly dialer?: Pick<Dialer, 'request'>;
}

const REQUEST_TIMEOUT_MS = 10_000;
const MAX_BYTES = 10 * 1024 * 1024;
const MAX_REDIRECTS = 10;
const ownDialer = createDialer();

/** Creates the source of `--manifest-url`. `checkMs` is the interval in milliseconds. */
export function createUrlSource(options: UrlSourceOptions): PodSource {
  return {
    name: 'http',
    async run(signal, onPods) {
      const { clock, logger, url, checkMs } = options;
      let etag: string | undefined;
      let lastError = '';
      const check = async (): Promise<void> => {
        const answer = await requestPods(options, etag, signal);
        lastError = '';
        if (answer === undefined) return;
        etag = answer.etag;
        onPods(answer.pods);
      };
      const onError = (error: unknown): void => {
        const message = errorMessage(error);
        if (message !== lastError)
          logger.error({ url, err: message }, 'Cannot read pods from the URL, keeping the last ones');
        lastError = message;
      };
      await periodically(check, { clock, periodMs: checkMs, signal, onError });
    },
  };
}

async function readBody(response: IncomingMessage): Promise<Buffer> {
  const gathered = new GatheredBytes();
  for await (const part of response as AsyncIterable<Buffer>) {
    gathered.push(part);
    if (gathered.size > MAX_BYTES) throw new Error(`the answer is larger than ${MAX_BYTES} bytes`);
  }
  return gathered.take();
}

/** Requests the URL. Resolves to `undefined` if the server answers that nothing has changed. Rejects for any other status. */
async function requestPods(
  options: UrlSourceOptions,
  etag: string | undefined,
  signal: AbortSignal,
): Promise<{ pods: readonly Pod[]; etag: string | undefined } | undefined> {
  const response = await finalResponse(
    options,
    etag,
    AbortSignal.any([signal, AbortSignal.timeout(REQUEST_TIMEOUT_MS)]),
  );
  const { statusCode: status = 0, statusMessage = '' } = response;
  if (status !== 200) response.destroy();
  if (status === 304) return undefined;
  if (status !== 200) throw new Error(`the server answered ${status} ${statusMessage}`);
  const body = await readBody(response);
  if (body.length === 0) throw new Error('the answer is empty');
  const { nodeName, yaml, reader } = options;
  const read = await readManifest(body, { source: 'http', origin: options.url, nodeName, yaml, reader });
  for (const warning of read.warnings) options.logger.warn({ url: options.url }, warning);
  return { pods: read.pods, etag: response.headers.etag };
}

/** Returns the response after all redirects, or a redirect that must not be followed. Rejects after ten redirects. */
async function finalResponse(
  { url: configured, headers, dialer = ownDialer }: UrlSourceOptions,
  etag: string | undefined,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const { origin } = new URL(configured);
  let url = new URL(configured);
  for (let redirects = 0; ; redirects++) {
    const isConfigured = url.origin === origin;
    const response = await get(url, {
      dialer,
      purpose: isConfigured ? 'configured' : 'manifest-redirect',
      headers: { ...(isConfigured ? headers : {}), ...(etag === undefined ? {} : { 'If-None-Match': etag }) },
      signal,
    });
    const { statusCode = 0 } = response;
    const { location } = response.headers;
    const isRedirect = statusCode >= 300 && statusCode < 400 && statusCode !== 304 && location !== undefined;
    const next = isRedirect ? redirectTarget('manifest-redirect', url, location) : undefined;
    if (next === undefined) return response;
    response.destroy();
    if (redirects >= MAX_REDIRECTS) throw new Error(`stopped after ${MAX_REDIRECTS} redirects`);
    url = next;
  }
}

function get(
  url: URL,
  {
    dialer,
    ...options
  }: {
    readonly dialer: Pick<Dialer, 'request'>;
    readonly purpose: 'configured' | 'manifest-redirect';
    readonly headers: Readonly<Record<string, string>>;
    readonly signal: AbortSignal;
  },
): Promise<IncomingMessage> {
  const secure = url.protocol === 'https:';
  const port = url.port === '' ? (secure ? 443 : 80) : Number(url.port);
  const auth =
    url.username === '' ? undefined : `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return new Promise((resolve, reject) => {
    const request = dialer.request(
      {
        ...options,
        secure,
        host: url.hostname,
        port,
        path: `${url.pathname}${url.search}`,
        agent: false,
        ...(auth === undefined ? {} : { auth }),
      },
      resolve,
    );
    request.on('error', (error) => reject(signalReason(options.signal) ?? error));
    request.end();
  });
}

const signalReason = (signal: AbortSignal): Error | undefined =>
  signal.aborted && signal.reason instanceof Error ? signal.reason : undefined;
