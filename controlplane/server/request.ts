/**
 * Represents a request in the handler chain. Filters fill it in order, verbs read it, and the registry gets it as its
 * `RequestContext`.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import { parseRequestPath, type RequestPath, RequestPathError, splitTarget } from '../../api/http/request-path.ts';
import { wantsPretty } from '../../api/http/pretty.ts';
import { newBadRequest } from '../../api/meta/status-error.ts';
import type { UserInfo } from '../model/user-info.ts';
import type { Authorizer } from '../security/authorization/authorization.ts';
import type { RequestContext, Rest } from '../model/rest.ts';
import { newAuditId } from './audit-id.ts';
import type { Exchange, ResponseHeaders } from './exchange.ts';
import { nonResource, type RequestInfo } from './request-info.ts';
import { warningHeaders } from './warning-headers.ts';

/** Synchronous results keep the hot path free of promises. */
export type MaybePromise<T> = T | Promise<T>;
/** Handles a request to its end. */
export type Handler = (request: ApiRequest) => MaybePromise<void>;
/** Calls `next` or sends a response itself, or throws a `StatusError`. */
export type Filter = (request: ApiRequest, next: Handler) => MaybePromise<void>;

/** Receives the bodies of a request for its audit record, which keeps those that its level requires. */
export interface RequestAudit {
  bodyIs(value: unknown): void;
  answerIs(object: Buffer | object | (() => object)): void;
  /** The response is a `Status`. */
  statusIs(status: object): void;
  /** The response begins. The request has its status code. */
  answering(): void;
  /** The handler failed with an unexpected error. */
  panicked(error: unknown): void;
  /** The handler has ended, and will report nothing more. */
  handled(): void;
}

/** Reads a body as a whole and reports the size of each part as it arrives. */
export type ReadCounted = (count: (bytes: number) => void) => Promise<Buffer>;

/** The place of a request in API priority and fairness. */
export interface RequestPlace {
  /** Reads the body. Resolves when the request may continue. */
  receive(read: ReadCounted): Promise<Buffer>;
  /** Resolves when a request whose body is forwarded may continue. */
  enter(): Promise<void>;
  /** Releases what the request holds before the request ends. Idempotent. */
  leave(): void;
}

/** The flow schema of a request and its priority level, which the headers of the response name. */
interface RequestFlow {
  readonly uid: string;
  readonly level: { readonly uid: string };
}

/** The maximum size of a field manager that a User-Agent names. */
const MAX_MANAGER_BYTES = 128;
/** Matches texts in which every character is printable and takes one byte. */
const PRINTABLE_ASCII = /^[ -~]*$/;
const NO_QUERY = new URLSearchParams();

/** Leaves out the pairs that Go's net/url cannot read: those with semicolons or broken escapes. */
function readablePairs(rawQuery: string): string {
  const pairs = rawQuery.split('&');
  return pairs.filter((pair) => !pair.includes(';') && !/%(?![\da-f]{2})/i.test(pair)).join('&');
}

const NOBODY: UserInfo = { name: '', groups: [] };
const NOT_READ = nonResource('', '');

/** A request from its arrival to its response. */
export class ApiRequest implements RequestContext {
  readonly exchange: Exchange;
  readonly auditId: string;
  /** The percent-encoded path without the query, as the client sent it. */
  readonly rawPath: string;
  /** The query without the question mark. */
  readonly rawQuery: string;
  /** The start of the request in monotonic milliseconds. */
  readonly startedMs: number;
  /** The time of arrival in wall-clock milliseconds. */
  readonly nowMs: number;
  info: RequestInfo = NOT_READ;
  user: UserInfo = NOBODY;
  /** The authenticated user if `user` is impersonated. */
  impersonator: UserInfo | undefined;
  /** The resource that handles the request, once it is known. */
  rest: Rest | undefined;
  /** The size of a received body. */
  requestBytes: number | undefined;
  responseBytes = 0;
  isLarge = false;
  annotations: Map<string, string> | undefined;
  /** The audit annotations that only audit events with bodies contain. */
  bodyAnnotations: Map<string, string> | undefined;
  /** Set once API priority and fairness has classified the request. */
  flow: RequestFlow | undefined;
  place: RequestPlace | undefined;
  audited: RequestAudit | undefined;
  hasEnded = false;
  /** The response forbids browsers to guess another type. */
  forbidsSniffing = false;
  #status = 0;
  readonly #authorizer: Authorizer;
  #path: RequestPath | undefined;
  #query: URLSearchParams | undefined;
  #warnings: Set<string> | undefined;
  #abort: AbortController | undefined;
  #fieldManager: string | undefined;

  constructor(exchange: Exchange, authorizer: Authorizer, clock: Clock) {
    this.exchange = exchange;
    this.#authorizer = authorizer;
    this.startedMs = clock.monotonic();
    this.nowMs = clock.now();
    const given = exchange.headers['audit-id'];
    this.auditId = typeof given === 'string' && given !== '' && given.length <= 64 ? given : newAuditId();
    const { path, query } = splitTarget(exchange.target);
    this.rawPath = path;
    this.rawQuery = query;
  }

  /** The status code of the response. It is 0 before the response. */
  get status(): number {
    return this.#status;
  }

  set status(code: number) {
    const isFirst = this.#status === 0;
    this.#status = code;
    if (isFirst && this.audited !== undefined) this.audited.answering();
  }

  /** The path for authorization, routing and proxies. Throws a 400 if it is invalid. */
  get path(): RequestPath {
    try {
      this.#path ??= parseRequestPath(this.rawPath);
    } catch (error) {
      if (error instanceof RequestPathError) throw newBadRequest(error.message);
      throw error;
    }
    return this.#path;
  }

  get query(): URLSearchParams {
    this.#query ??= this.rawQuery === '' ? NO_QUERY : new URLSearchParams(readablePairs(this.rawQuery));
    return this.#query;
  }

  header(name: string): string | undefined {
    const value = this.exchange.headers[name];
    return Array.isArray(value) ? value[0] : value;
  }

  get remoteAddress(): string {
    return this.exchange.connection.remoteAddress;
  }

  get userAgent(): string {
    return this.header('user-agent') ?? '';
  }

  /** Whether JSON is indented even if the Accept header does not ask for it. */
  get wantsPretty(): boolean {
    const pretty = this.rawQuery === '' ? null : this.query.get('pretty');
    return wantsPretty({ pretty, userAgent: this.userAgent });
  }

  get fieldManager(): string {
    if (this.#fieldManager === undefined) {
      const given = this.query.get('fieldManager') ?? '';
      this.#fieldManager = given === '' ? managerOf(this.userAgent) : given;
    }
    return this.#fieldManager;
  }

  /** Aborts when the client is disconnected before the request has ended, and by `abort`. */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      const controller = new AbortController();
      this.#abort = controller;
      this.exchange.onClose(() => {
        if (!this.hasEnded) controller.abort(new Error('the client is disconnected'));
      });
    }
    return this.#abort.signal;
  }

  abort(reason: Error): void {
    this.#abort ??= new AbortController();
    this.#abort.abort(reason);
  }

  warn(text: string): void {
    if (text === '') return;
    this.#warnings ??= new Set();
    this.#warnings.add(text);
  }

  annotate(key: string, value: string, level?: 'Request'): void {
    const annotations = level === undefined ? (this.annotations ??= new Map()) : (this.bodyAnnotations ??= new Map());
    if (!annotations.has(key)) annotations.set(key, value);
  }

  async may(
    verb: string,
    target: { group: string; resource: string; subresource?: string; namespace: string; name: string },
  ): Promise<boolean> {
    const decision = await this.#authorizer.authorize({
      user: this.user,
      verb,
      isResourceRequest: true,
      group: target.group,
      version: '*',
      resource: target.resource,
      subresource: target.subresource ?? '',
      namespace: target.namespace,
      name: target.name,
      path: this.info.path,
    });
    return decision.decision === 'allow';
  }

  /** Returns the headers of every response. */
  responseHeaders(contentType: string): ResponseHeaders {
    const headers: ResponseHeaders = {
      'content-type': contentType,
      'audit-id': this.auditId,
      'cache-control': 'no-cache, private',
    };
    if (this.flow !== undefined) {
      headers['x-kubernetes-pf-flowschema-uid'] = this.flow.uid;
      headers['x-kubernetes-pf-prioritylevel-uid'] = this.flow.level.uid;
    }
    if (this.forbidsSniffing) headers['x-content-type-options'] = 'nosniff';
    if (this.#warnings !== undefined) headers['warning'] = warningHeaders([...this.#warnings]);
    return headers;
  }

  /** Sends a 204 without a body. */
  sendNothing(): void {
    this.status = 204;
    const { 'content-type': _, ...headers } = this.responseHeaders('');
    this.exchange.send(204, headers, undefined);
  }

  send(status: number, contentType: string, body: Buffer | string | undefined): void {
    this.sendWith(status, this.responseHeaders(contentType), body);
  }

  /** Sends a response that has more headers than `responseHeaders`. */
  sendWith(status: number, headers: ResponseHeaders, body: Buffer | string | undefined): void {
    this.status = status;
    this.responseBytes = body === undefined ? 0 : Buffer.byteLength(body);
    this.exchange.send(status, headers, body);
  }
}

/**
 * Returns the User-Agent up to its first slash, without characters that cannot be printed, in at most 128 bytes. Returns
 * `unknown` if nothing is left. Node.js decodes headers as Latin-1, but kube-apiserver reads this one as UTF-8.
 */
function managerOf(userAgent: string): string {
  if (PRINTABLE_ASCII.test(userAgent)) {
    const end = userAgent.indexOf('/');
    return userAgent.slice(0, Math.min(end < 0 ? MAX_MANAGER_BYTES : end, MAX_MANAGER_BYTES)) || 'unknown';
  }
  const [name = ''] = Buffer.from(userAgent, 'latin1').toString('utf8').split('/', 1);
  const printable = name.replaceAll(/[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu, '');
  let manager = '';
  let bytes = 0;
  for (const char of printable) {
    bytes += Buffer.byteLength(char);
    if (bytes > MAX_MANAGER_BYTES) break;
    manager += char;
  }
  return manager === '' ? 'unknown' : manager;
}
