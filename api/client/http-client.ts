/**
 * Implements `Client` over HTTP(S). Requests are rate limited and may be sent several times: when the server asks for it, never
 * received them or refused credentials that can be renewed, and GETs also when their connection failed. Watches are read only
 * as fast as the caller consumes them.
 */
import { stringifyJson } from '../codec/json.ts';
import type { Readable } from 'node:stream';
import { StatusError, type Status } from '../meta/status-error.ts';
import type { KubeList, KubeObject } from '../meta/object.ts';
import type {
  Client,
  ClientDeleteOptions,
  ClientListOptions,
  ClientWatchEvent,
  ClientWatchOptions,
  ClientCreateOptions,
  ClientWriteOptions,
  ClientPatch,
  PatchType,
  Resource,
} from './client.ts';
import { type ClientCredentials, noCredentials } from './client-credentials.ts';
import type { Clock } from '../machinery/clock.ts';
import { NotSentError, type TransportResponse } from './http-connections.ts';
import { HttpTransport, type TransportOptions } from './http-transport.ts';
import { jsonFormat, type ObjectFormat } from './object-format.ts';
import { RateLimiter } from '../machinery/rate-limiter.ts';
import type { ObservedRequest, RequestObserver } from './request-observer.ts';
import { framesOf, isEndOfStream, linesOf, mapped, readAll } from './response-body.ts';
import { retryAfterMs, statusOf } from './response-status.ts';
import { JSON_TYPE } from '../http/media-types.ts';

interface HttpClientOptions extends TransportOptions {
  readonly credentials?: ClientCredentials;
  readonly userAgent?: string;
  /** The requests per second and the burst. 0 means no limit. A watch counts once, when it starts. */
  readonly qps?: number;
  readonly burst?: number;
  /** The format of objects. The default is JSON. */
  readonly format?: ObjectFormat;
  /** The timeout of a response. Watches and `raw` requests have none. */
  readonly timeoutMs?: number;
  readonly onTimeout?: () => void;
  /** The maximum size of a response; watches and `raw` have none. The default is 512 MiB, the limit of texts in Node.js. */
  readonly largestResponseBytes?: number;
  readonly observe?: RequestObserver;
}

interface RawRequest {
  readonly method: string;
  /** The path with its query. */
  readonly path: string;
  readonly body?: unknown;
  readonly contentType?: string;
  readonly accept?: string;
  readonly signal?: AbortSignal;
  /** The response is a watch. It ends when the connections are renewed, and the caller resumes it. */
  readonly isWatch?: boolean;
}

const PATCH_CONTENT_TYPES: Readonly<Record<PatchType, string>> = {
  json: 'application/json-patch+json',
  merge: 'application/merge-patch+json',
  strategic: 'application/strategic-merge-patch+json',
  apply: 'application/apply-patch+yaml',
};

/** How often a request is repeated if the server asks for it (`Retry-After`), as in Kubernetes' Go client. */
const MAX_RETRIES = 10;

/** The codes of a server that cannot serve, for example because it does not reach its storage. */
const UNABLE: ReadonlySet<number> = new Set([502, 503, 504]);

/** A client of one cluster. It holds connections until `close`. */
export class HttpClient implements Client {
  readonly #transport: HttpTransport;
  readonly #clock: Clock;
  readonly #credentials: ClientCredentials;
  readonly #limiter: RateLimiter;
  readonly #userAgent: string;
  readonly #format: ObjectFormat;
  readonly #timeoutMs: number | undefined;
  readonly #onTimeout: (() => void) | undefined;
  readonly #largestBytes: number | undefined;
  readonly #observe: RequestObserver | undefined;

  constructor(options: HttpClientOptions) {
    this.#transport = new HttpTransport(options);
    this.#clock = options.clock;
    this.#credentials = options.credentials ?? noCredentials;
    this.#limiter = new RateLimiter({ clock: options.clock, qps: options.qps ?? 0, burst: options.burst ?? 10 });
    this.#userAgent = options.userAgent ?? 'orchlet';
    this.#format = options.format ?? jsonFormat;
    this.#timeoutMs = options.timeoutMs;
    this.#onTimeout = options.onTimeout;
    this.#largestBytes = options.largestResponseBytes;
    this.#observe = options.observe;
  }

  close(): void {
    this.#transport.close();
  }

  /** Closes the connections, for example if the server seems to be gone. The next request opens new ones. */
  closeConnections(): void {
    this.#transport.closeConnections();
  }

  /** Replaces the CAs (PEM) by which the server is verified. */
  trust(ca: string): void {
    this.#transport.trust(ca);
  }

  /** Makes later requests use new connections. Watches end, and other running requests may finish. */
  renewConnections(): void {
    this.#transport.renewConnections();
  }

  async get(
    resource: Resource,
    namespace: string,
    name: string,
    options: { readonly subresource?: string; readonly resourceVersion?: string; readonly signal?: AbortSignal } = {},
  ): Promise<KubeObject> {
    const query = { resourceVersion: options.resourceVersion };
    return this.#object({
      method: 'GET',
      path: pathOf(resource, { namespace, name, subresource: options.subresource }, query),
      ...signalOf(options),
    });
  }

  async list(resource: Resource, options: ClientListOptions = {}): Promise<KubeList> {
    const path = pathOf(resource, { namespace: options.namespace ?? '' }, listQuery(options));
    const list = (await this.json({ method: 'GET', path, ...signalOf(options) })) as
      | KubeList
      | (Omit<KubeList, 'items'> & { items: null });
    return { ...list, items: list.items ?? [] };
  }

  async create(
    resource: Resource,
    namespace: string,
    object: KubeObject,
    options: ClientCreateOptions = {},
  ): Promise<KubeObject> {
    const name = options.subresource === undefined ? '' : (options.name ?? object.metadata.name ?? '');
    const path = pathOf(resource, { namespace, name, subresource: options.subresource }, writeQuery(options));
    return this.#object({ method: 'POST', path, body: object, ...signalOf(options) });
  }

  async update(resource: Resource, object: KubeObject, options: ClientWriteOptions = {}): Promise<KubeObject> {
    const { namespace = '', name = '' } = object.metadata;
    const path = pathOf(resource, { namespace, name, subresource: options.subresource }, writeQuery(options));
    return this.#object({ method: 'PUT', path, body: object, ...signalOf(options) });
  }

  async patch(resource: Resource, namespace: string, name: string, patch: ClientPatch): Promise<KubeObject> {
    const { type, body, ...options } = patch;
    const query = { ...writeQuery(options), force: options.force === true ? 'true' : undefined };
    const path = pathOf(resource, { namespace, name, subresource: options.subresource }, query);
    return this.#object({
      method: 'PATCH',
      path,
      body,
      contentType: PATCH_CONTENT_TYPES[type],
      ...signalOf(options),
    });
  }

  delete(resource: Resource, namespace: string, name: string, options: ClientDeleteOptions = {}): Promise<unknown> {
    return this.json({
      method: 'DELETE',
      path: pathOf(resource, { namespace, name }),
      body: deleteBody(options),
      ...signalOf(options),
    });
  }

  async deleteCollection(resource: Resource, options: ClientListOptions & ClientDeleteOptions): Promise<void> {
    const path = pathOf(resource, { namespace: options.namespace ?? '' }, listQuery(options));
    await this.json({ method: 'DELETE', path, body: deleteBody(options), ...signalOf(options) });
  }

  async *watch(resource: Resource, options: ClientWatchOptions = {}): AsyncIterable<ClientWatchEvent> {
    const query = {
      ...listQuery(options),
      watch: 'true',
      allowWatchBookmarks: 'true',
      timeoutSeconds: options.timeoutSeconds,
      sendInitialEvents: options.sendInitialEvents,
    };
    const path = pathOf(resource, { namespace: options.namespace ?? '' }, query);
    let body: Readable | undefined;
    try {
      const { accept } = this.#format;
      const answer = await this.raw({ method: 'GET', path, isWatch: true, accept, ...signalOf(options) });
      body = answer.body;
      for await (const event of this.#eventsOf(answer)) {
        if (event.type === 'ERROR') throw new StatusError(event.object as Status);
        yield event as ClientWatchEvent;
      }
    } catch (error) {
      if (options.signal?.aborted || isEndOfStream(error)) return;
      // The caller resumes the watch at another server.
      if (this.#transport.servers.all.length > 1 && body !== undefined && !(error instanceof StatusError)) return;
      throw error;
    } finally {
      body?.destroy();
    }
  }

  #eventsOf({ body, headers }: TransportResponse): AsyncIterable<{ readonly type: string; readonly object: unknown }> {
    const decoder = this.#format.decoderFor(headers['content-type'] ?? '');
    return decoder === undefined
      ? mapped(linesOf(body), (line) => JSON.parse(line) as { type: string; object: unknown })
      : mapped(framesOf(body), (frame) => decoder.decodeWatchEvent(frame));
  }

  /**
   * Sends a request to any path, and resolves to a response with a status below 400. The caller must read or destroy its body.
   * Rejects with a `StatusError` for another status, and with another error if there is no response.
   */
  async raw(request: RawRequest): Promise<TransportResponse> {
    const { body, contentType } = this.#encoded(request);
    const observed = this.#observed(request);
    const { servers } = this.#transport;
    for (let attempt = 0; ; attempt++) {
      const calledMs = this.#clock.monotonic();
      await this.#limiter.accept(request.signal);
      this.#observe?.limited(observed, this.#clock.monotonic() - calledMs);
      const { certificate, key, authorization } = await this.#credentials.current();
      this.#transport.useCertificate({ certificate, key });
      const headers = {
        accept: request.accept ?? JSON_TYPE,
        'user-agent': this.#userAgent,
        ...(body === undefined ? {} : { 'content-type': contentType }),
        ...(authorization === undefined ? {} : { authorization }),
      };
      let response: TransportResponse | undefined;
      const { current } = servers;
      const fromMs = this.#clock.monotonic();
      try {
        response = await this.#transport.request({
          method: request.method,
          path: request.path,
          headers,
          body,
          signal: request.signal,
          isWatch: request.isWatch === true,
        });
      } catch (error) {
        // A session that died while it was idle is noticed only now.
        const mayRepeat = error instanceof NotSentError || request.method === 'GET';
        if (mayRepeat && !request.signal?.aborted && attempt < servers.all.length) continue;
        throw error;
      } finally {
        this.#observe?.sent(observed, {
          status: response?.status,
          tookMs: this.#clock.monotonic() - fromMs,
          bytes: body === undefined ? 0 : Buffer.byteLength(body),
          isRetry: attempt > 0,
        });
      }
      if (response.status < 400) return response;
      const failure = await statusOf(response, this.#format, this.#largestBytes);
      if (UNABLE.has(response.status)) servers.cannotServe(current);
      if (response.status === 401 && attempt === 0 && this.#credentials.refused?.() === true) continue;
      const waitMs = retryAfterMs(response);
      if (waitMs === undefined || attempt >= MAX_RETRIES) throw failure;
      await this.#clock.sleep(waitMs, request.signal);
    }
  }

  async #object(request: RawRequest): Promise<KubeObject> {
    return (await this.json(request)) as KubeObject;
  }

  /**
   * Sends a request to any path and reads the response, both within the timeout of the client. Failures are `StatusError`s,
   * and other errors if there is no response or if it cannot be decoded.
   */
  async json(request: RawRequest): Promise<unknown> {
    if (this.#timeoutMs === undefined) return this.#answer(request);
    const { signal } = request;
    const deadline = new AbortController();
    const { servers } = this.#transport;
    const { current } = servers;
    const timer = this.#clock.after(this.#timeoutMs, () => {
      deadline.abort(new Error(`${this.#transport.server} did not answer within ${(this.#timeoutMs ?? 0) / 1000} s`));
      servers.failed(current);
      this.#onTimeout?.();
    });
    try {
      const both = signal === undefined ? deadline.signal : AbortSignal.any([signal, deadline.signal]);
      return await this.#answer({ ...request, signal: both });
    } catch (error) {
      // A body that was being read fails without naming the cause.
      deadline.signal.throwIfAborted();
      throw error;
    } finally {
      timer.cancel();
    }
  }

  async #answer(request: RawRequest): Promise<unknown> {
    const { body, headers } = await this.raw({ accept: this.#format.accept, ...request });
    const bytes = await readAll(body, this.#largestBytes);
    this.#observe?.received(this.#observed(request), bytes.length);
    const decoder = this.#format.decoderFor(headers['content-type'] ?? '');
    return decoder === undefined ? (JSON.parse(bytes.toString('utf8')) as unknown) : decoder.decode(bytes);
  }

  #observed({ method }: RawRequest): ObservedRequest {
    return { method, server: this.#transport.server };
  }

  /** Encodes a body. Texts and buffers are sent unchanged. */
  #encoded({ body, contentType = JSON_TYPE }: RawRequest): {
    readonly body: Buffer | string | undefined;
    readonly contentType: string;
  } {
    if (body === undefined || typeof body === 'string' || Buffer.isBuffer(body)) return { body, contentType };
    const encoded =
      contentType === JSON_TYPE && typeof body === 'object' && body !== null ? this.#format.encode(body) : undefined;
    return encoded ?? { body: stringifyJson(body), contentType };
  }
}

type Query = Readonly<Record<string, string | number | boolean | undefined>>;

/** The parts of a path that identify what a request is for. An empty namespace or name is left out. */
interface Place {
  readonly namespace: string;
  readonly name?: string;
  readonly subresource?: string | undefined;
}

function pathOf(resource: Resource, { namespace, name = '', subresource }: Place, query: Query = {}): string {
  let path = resource.group === '' ? `/api/${resource.version}` : `/apis/${resource.group}/${resource.version}`;
  if (resource.namespaced && namespace !== '') path += `/namespaces/${encodeURIComponent(namespace)}`;
  path += `/${resource.resource}`;
  if (name !== '') path += `/${encodeURIComponent(name)}`;
  if (subresource !== undefined) path += `/${subresource}`;
  const parameters = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') parameters.set(key, String(value));
  }
  return parameters.size === 0 ? path : `${path}?${parameters}`;
}

function listQuery(options: ClientListOptions | ClientWatchOptions): Query {
  return {
    labelSelector: options.labelSelector,
    fieldSelector: options.fieldSelector,
    resourceVersion: options.resourceVersion,
    resourceVersionMatch: options.resourceVersionMatch,
    ...('limit' in options ? { limit: options.limit } : {}),
    ...('continue' in options ? { continue: options.continue } : {}),
  };
}

function writeQuery(options: ClientWriteOptions): Query {
  return { dryRun: options.dryRun === true ? 'All' : undefined, fieldManager: options.fieldManager };
}

function deleteBody(options: ClientDeleteOptions): unknown {
  const { gracePeriodSeconds, propagationPolicy, preconditions, dryRun } = options;
  return {
    kind: 'DeleteOptions',
    apiVersion: 'v1',
    ...(gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds }),
    ...(propagationPolicy === undefined ? {} : { propagationPolicy }),
    ...(preconditions === undefined ? {} : { preconditions }),
    ...(dryRun === true ? { dryRun: ['All'] } : {}),
  };
}

function signalOf(options: { readonly signal?: AbortSignal }): { signal?: AbortSignal } {
  return options.signal === undefined ? {} : { signal: options.signal };
}
