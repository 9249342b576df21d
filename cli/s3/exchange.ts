/**
 * Sends a request to an S3 server. The server is not trusted: responses are bounded in size and time, redirects are not
 * followed, and transient failures are retried a few times.
 */
import { request as requestHttps } from 'node:https';
import type { IncomingMessage } from 'node:http';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { GatheredBytes } from '../../api/machinery/gathered-bytes.ts';
import { request as requestHttp } from '../../api/http/node-http.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { CommandError } from '../command-line/command.ts';
import type { S3Settings } from './settings.ts';
import { encodePath, encodeQuery, signedHeaders } from './signature.ts';

/** The time limit without a byte in either direction. */
const IDLE_MS = 30_000;
/**
 * The time limit from the start of a request to the start of its response, and for each 8 MiB of a long response. A part of
 * 8 MiB then needs 14 KiB/s.
 */
const ANSWER_MS = 10 * 60_000;
const PIECE_BYTES = 8 << 20;
const MAX_ANSWER_BYTES = 1 << 20;
const RETRY_DELAYS_MS = [1000, 4000, 10_000];
const TRANSIENT_STATUSES = new Set([408, 429, 500, 502, 503, 504]);

interface S3Request {
  readonly method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  /** Empty for the bucket itself. */
  readonly key: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: Buffer;
}

interface S3Answer {
  readonly headers: IncomingMessage['headers'];
  readonly text: string;
}

/** A response that is an error. The status is 0 for a response that is too large. */
export class S3Error extends CommandError {
  readonly status: number;

  constructor(message: string, status: number) {
    super(message);
    this.status = status;
  }
}

/** The time limits of a request, and the pauses before it is sent again. */
export interface S3Times {
  readonly idleMs: number;
  readonly answerMs: number;
  readonly retryDelaysMs: readonly number[];
}

const s3Times: S3Times = { idleMs: IDLE_MS, answerMs: ANSWER_MS, retryDelaysMs: RETRY_DELAYS_MS };

/** Signs and sends requests to one bucket. */
export class S3Exchange {
  readonly #settings: S3Settings;
  readonly #clock: Clock;
  readonly #times: S3Times;

  constructor(settings: S3Settings, clock: Clock, times: S3Times = s3Times) {
    this.#settings = settings;
    this.#clock = clock;
    this.#times = times;
  }

  /** Sends a request with a short response. Rejects with a one-line `CommandError`. */
  ask(asked: S3Request): Promise<S3Answer> {
    return this.#withRetries(asked, async (response) => ({
      headers: response.headers,
      text: await this.#shortBody(response),
    }));
  }

  /**
   * Sends a request, and resolves to what `read` makes of the body of a successful response, which ends in bounded time. If the
   * request or `read` fails transiently, both are repeated, and `read` starts from the beginning. Rejects with a one-line
   * `CommandError`.
   */
  async request<T>(asked: S3Request, read: (body: AsyncIterable<Buffer>) => Promise<T>): Promise<T> {
    return this.#withRetries(asked, (response) => read(this.#bodyOf(response)));
  }

  async #withRetries<T>(asked: S3Request, read: (response: IncomingMessage) => Promise<T>): Promise<T> {
    for (let attempt = 0; ; attempt += 1) {
      const delayMs = this.#times.retryDelaysMs[attempt];
      try {
        return await read(await this.#open(asked));
      } catch (error) {
        const isTransient =
          error instanceof S3Error ? TRANSIENT_STATUSES.has(error.status) : !(error instanceof CommandError);
        if (!isTransient) throw error;
        if (delayMs === undefined) throw this.#described(asked, error);
        await this.#clock.sleep(delayMs);
      }
    }
  }

  /** Returns a successful response whose body is not read yet. */
  async #open(asked: S3Request): Promise<IncomingMessage> {
    const response = await this.#send(asked);
    const status = response.statusCode ?? 0;
    if (status >= 200 && status < 300) return response;
    const text = await this.#shortBody(response).catch(() => '');
    const region = response.headers['x-amz-bucket-region'];
    const why = [elementOf(text, 'Code'), elementOf(text, 'Message')].filter((part) => part !== '').join(': ');
    const what = [`answered ${status}`, why.slice(0, 300)].filter((part) => part !== '').join(' ');
    const where = typeof region === 'string' ? ` (the bucket is in the region ${region.slice(0, 40)})` : '';
    throw new S3Error(`${this.#nameOf(asked)} ${what}${where}`, status);
  }

  #send({ method, key, query = {}, body = Buffer.alloc(0) }: S3Request): Promise<IncomingMessage> {
    const { url, region, credentials, ca } = this.#settings;
    const path = `${url.pathname.replace(/\/$/, '')}/${key}`;
    const headers = signedHeaders(
      { method, host: url.host, path, query, body },
      { credentials, region, now: this.#clock.now() },
    );
    const answered = Promise.withResolvers<IncomingMessage>();
    const search = encodeQuery(query);
    const options = {
      method,
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port,
      path: `${encodePath(path)}${search === '' ? '' : `?${search}`}`,
      headers: { ...headers, 'content-length': body.length },
      timeout: this.#times.idleMs,
      agent: false,
      ...(ca === undefined ? {} : { ca }),
    };
    const sent = url.protocol === 'http:' ? requestHttp(options) : requestHttps(options);
    const late = this.#clock.after(this.#times.answerMs, () =>
      sent.destroy(new Error(`no answer within ${this.#times.answerMs / 1000} s`)),
    );
    // The timeout also applies while the body is read, so a response that stalls is aborted.
    sent.on('timeout', () => sent.destroy(new Error(`nothing came for ${this.#times.idleMs / 1000} s`)));
    sent.on('error', answered.reject);
    sent.on('response', answered.resolve);
    sent.end(body);
    return answered.promise.finally(() => late.cancel());
  }

  /** Yields the body of a response, and throws if it comes byte by byte, which no limit of idle time ends. */
  async *#bodyOf(response: IncomingMessage): AsyncGenerator<Buffer, void, undefined> {
    const { answerMs } = this.#times;
    const begin = (): Timer =>
      this.#clock.after(answerMs, () => response.destroy(new Error(`no end within ${answerMs / 1000} s`)));
    let late = begin();
    let remainingBytes = PIECE_BYTES;
    try {
      for await (const chunk of response as AsyncIterable<Buffer>) {
        remainingBytes -= chunk.length;
        if (remainingBytes <= 0) {
          remainingBytes = PIECE_BYTES;
          late.cancel();
          late = begin();
        }
        yield chunk;
      }
    } finally {
      late.cancel();
    }
  }

  async #shortBody(response: IncomingMessage): Promise<string> {
    const gathered = new GatheredBytes();
    for await (const chunk of this.#bodyOf(response)) {
      gathered.push(chunk);
      // Leaving the loop destroys the connection.
      if (gathered.size > MAX_ANSWER_BYTES)
        throw new S3Error(`the S3 server answered with more than ${MAX_ANSWER_BYTES} bytes`, 0);
    }
    return gathered.take().toString('utf8');
  }

  #nameOf({ method, key }: S3Request): string {
    return `S3 ${method} ${this.#settings.url.href}${key === '' ? '' : `/${key}`}`;
  }

  #described(asked: S3Request, error: unknown): CommandError {
    if (error instanceof CommandError) return error;
    const why = errorMessage(error);
    return new CommandError(`${this.#nameOf(asked)} failed: ${why}`, { cause: error });
  }
}

const ENTITIES: ReadonlyMap<string, string> = new Map(
  Object.entries({ lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' }),
);

/** Returns the texts of all elements of a name, of XML without nested elements of that name. */
export function elementsOf(xml: string, name: string): readonly string[] {
  const found: string[] = [];
  let end = 0;
  for (;;) {
    const open = xml.indexOf(`<${name}>`, end);
    const close = open < 0 ? -1 : xml.indexOf(`</${name}>`, open);
    if (close < 0) return found;
    const text = xml.slice(open + name.length + 2, close);
    found.push(text.replaceAll(/&(lt|gt|quot|apos|amp);/g, (_whole, entity: string) => ENTITIES.get(entity) ?? ''));
    end = close;
  }
}

/** Returns the text of the first element with this name; '' if there is none. */
export const elementOf = (xml: string, name: string): string => elementsOf(xml, name)[0] ?? '';
