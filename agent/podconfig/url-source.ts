/** Static pods from a URL: one pod or a list, asked for again at a fixed frequency, with the ETag of the last answer. */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Pod } from '../core-types.ts';
import type { PodSource } from './pod-source.ts';
import { type PodReader, readManifest } from './static-pod.ts';

export interface UrlSourceOptions {
  readonly url: string;
  /** `--manifest-url-header`. */
  readonly headers: Readonly<Record<string, string>>;
  /** `--http-check-frequency`. */
  readonly checkMs: number;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly reader: PodReader;
}

const REQUEST_TIMEOUT_MS = 10_000;
const MAX_BYTES = 10 * 1024 * 1024;

export function createUrlSource(options: UrlSourceOptions): PodSource {
  return {
    name: 'http',
    async run(signal, onPods) {
      const { clock, logger, url, checkMs } = options;
      let etag: string | undefined;
      let lastError = '';
      while (!signal.aborted) {
        try {
          const answer = await ask(options, etag, signal);
          lastError = '';
          if (answer !== undefined) {
            etag = answer.etag;
            onPods(answer.pods);
          }
        } catch (error) {
          if (signal.aborted) return;
          const message = error instanceof Error ? error.message : String(error);
          if (message !== lastError)
            logger.error({ url }, `pods could not be read from ${url}: ${message}; the last ones stay`);
          lastError = message;
        }
        await clock.sleep(checkMs, signal).catch(() => undefined);
      }
    },
  };
}

async function readBody(response: Response): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of response.body ?? []) {
    size += part.length;
    if (size > MAX_BYTES) throw new Error(`the answer is larger than ${MAX_BYTES} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

async function ask(
  options: UrlSourceOptions,
  etag: string | undefined,
  signal: AbortSignal,
): Promise<{ pods: readonly Pod[]; etag: string | undefined } | undefined> {
  const response = await fetch(options.url, {
    headers: { ...options.headers, ...(etag === undefined ? {} : { 'If-None-Match': etag }) },
    signal: AbortSignal.any([signal, AbortSignal.timeout(REQUEST_TIMEOUT_MS)]),
  });
  if (response.status === 304) return undefined;
  if (response.status !== 200) throw new Error(`the server answered ${response.status} ${response.statusText}`);
  const body = await readBody(response);
  if (body.length === 0) throw new Error('the answer is empty');
  const { nodeName, clock, reader } = options;
  const read = readManifest(body, { source: 'http', origin: options.url, nodeName, clock, reader });
  for (const warning of read.warnings) options.logger.warn({ url: options.url }, warning);
  return { pods: read.pods, etag: response.headers.get('etag') ?? undefined };
}
