/**
 * A request in the handler chain: filters fill it in order, verbs read it, and the registry gets it as its `RequestContext`.
 * Each request has its own; nothing in it is shared.
 */
import { randomUUID } from 'node:crypto';
import type { Clock } from '../../api/machinery/clock.ts';
import { parseRequestPath, type RequestPath, RequestPathError, splitTarget } from '../../api/machinery/request-path.ts';
import { newBadRequest } from '../../api/meta/status-error.ts';
import type { UserInfo } from '../authentication/authentication.ts';
import type { Authorizer } from '../authorization/authorization.ts';
import type { RequestContext, Rest } from '../model/rest.ts';
import type { Exchange, ResponseHeaders } from './exchange.ts';
import type { RequestInfo } from './request-info.ts';

export type MaybePromise<T> = T | Promise<T>;
export type Handler = (request: ApiRequest) => MaybePromise<void>;
/** Calls `next`, or answers itself. Throws `StatusError`s; the first filter turns them into answers. */
export type Filter = (request: ApiRequest, next: Handler) => MaybePromise<void>;

/** Receives the bodies of a request for its audit record, which keeps those that its level requires. */
export interface RequestAudit {
  bodyIs(value: unknown): void;
  answerIs(object: Buffer | object | (() => object)): void;
  /** A `Status` is the answer. */
  statusIs(status: object): void;
  /** The answer begins; `status` stands in the request. */
  answering(): void;
  /** The handler failed with an unexpected error. */
  panicked(error: unknown): void;
}

/** Reads a body as a whole and reports the bytes of each part as it comes. */
export type ReadCounted = (count: (bytes: number) => void) => Promise<Buffer>;

/** The place of a request in API priority and fairness. */
export interface RequestPlace {
  /** Reads the body; resolves when the request may go on. */
  receive(read: ReadCounted): Promise<Buffer>;
  /** Resolves when a request may go on whose body is passed on instead of read. */
  enter(): Promise<void>;
  /** Gives back what the request holds, before its end; idempotent. */
  leave(): void;
}

/** What answers report of the flow schema that a request belongs to. */
export interface RequestFlow {
  readonly uid: string;
  readonly level: { readonly uid: string };
}

const NO_QUERY = new URLSearchParams();
const NOBODY: UserInfo = { name: '', groups: [] };
const NOT_READ: RequestInfo = {
  isResource: false,
  verb: '',
  path: '',
  group: '',
  version: '',
  namespace: '',
  resource: '',
  subresource: '',
  name: '',
  parts: [],
  watchPrefix: false,
};

export class ApiRequest implements RequestContext {
  readonly exchange: Exchange;
  readonly auditId: string;
  /** As sent: percent-encoded, without the query. */
  readonly rawPath: string;
  /** Without the question mark. */
  readonly rawQuery: string;
  /** Monotonic milliseconds. */
  readonly startedMs: number;
  /** Wall-clock milliseconds at which it came. */
  readonly nowMs: number;
  info: RequestInfo = NOT_READ;
  user: UserInfo = NOBODY;
  /** Who authenticated, where `user` is impersonated. */
  impersonator: UserInfo | undefined;
  /** The resource that answers, once it is known. */
  rest: Rest | undefined;
  /** Of a body that was received. */
  requestBytes: number | undefined;
  responseBytes = 0;
  isLarge = false;
  /** Audit annotations. */
  annotations: Map<string, string> | undefined;
  /** The watches of objects: only events with bodies count. */
  bodyAnnotations: Map<string, string> | undefined;
  /** Under API priority and fairness, except for streams. */
  flow: RequestFlow | undefined;
  place: RequestPlace | undefined;
  /** Where the request is audited. */
  audited: RequestAudit | undefined;
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
    this.auditId = typeof given === 'string' && given !== '' && given.length <= 64 ? given : randomUUID();
    const { path, query } = splitTarget(exchange.target);
    this.rawPath = path;
    this.rawQuery = query;
  }

  /** Of the answer; 0 before it. */
  get status(): number {
    return this.#status;
  }

  set status(code: number) {
    const isFirst = this.#status === 0;
    this.#status = code;
    if (isFirst && this.audited !== undefined) this.audited.answering();
  }

  /** The path that authorization, routing and proxies use. Throws 400 where it cannot be read. */
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
    this.#query ??= this.rawQuery === '' ? NO_QUERY : new URLSearchParams(this.rawQuery);
    return this.#query;
  }

  header(name: string): string | undefined {
    const value = this.exchange.headers[name];
    return Array.isArray(value) ? value[0] : value;
  }

  get userAgent(): string {
    return this.header('user-agent') ?? '';
  }

  get fieldManager(): string {
    if (this.#fieldManager === undefined) {
      const given = this.query.get('fieldManager') ?? '';
      this.#fieldManager = given === '' ? managerOf(this.userAgent) : given;
    }
    return this.#fieldManager;
  }

  /** Aborts when the client has gone or the request has taken too long. */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      const controller = new AbortController();
      this.#abort = controller;
      this.exchange.onClose(() => controller.abort(new Error('the request has ended')));
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

  /** The headers that every answer has. */
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
    if (this.#warnings !== undefined) headers['warning'] = warningHeaders([...this.#warnings]);
    return headers;
  }

  send(status: number, contentType: string, body: Buffer | string | undefined): void {
    this.status = status;
    this.responseBytes = body?.length ?? 0;
    this.exchange.send(status, this.responseHeaders(contentType), body);
  }
}

/** What stands before the first slash of the User-Agent. */
function managerOf(userAgent: string): string {
  const slash = userAgent.indexOf('/');
  const name = slash < 0 ? userAgent : userAgent.slice(0, slash);
  return name.slice(0, 128);
}

/** Longer texts are cut, and then dropped, so that the headers stay within what clients accept. */
const MAX_WARNING_CHARS = 256;
const MAX_WARNINGS_CHARS = 4096;

function warningHeaders(warnings: readonly string[]): string[] {
  const total = warnings.reduce((sum, text) => sum + text.length, 0);
  const headers: string[] = [];
  let used = 0;
  for (const text of warnings) {
    const shown = total > MAX_WARNINGS_CHARS ? text.slice(0, MAX_WARNING_CHARS) : text;
    used += shown.length;
    if (used > MAX_WARNINGS_CHARS) break;
    headers.push(`299 - "${escapeWarning(shown)}"`);
  }
  return headers;
}

function escapeWarning(text: string): string {
  // Control characters cannot stand in a header, and neither can what is no Latin-1: it goes out as UTF-8 bytes.
  const clean = text.replaceAll(/\p{Cc}+/gu, ' ').replaceAll(/[\\"]/g, '\\$&');
  return Buffer.from(clean, 'utf8').toString('latin1');
}
