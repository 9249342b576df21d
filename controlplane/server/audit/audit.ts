/**
 * Records requests in the audit log. When the user of a request is known, the audit policy decides its level. The request's
 * record collects what the level requires, and sends an event to every backend at each stage that the policy does not omit.
 */
import { randomUUID } from 'node:crypto';
import { parseExactJson, stringifyJson } from '../../../api/codec/json.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { canonicalIp } from '../../../api/meta/ip-addresses.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Counter, Family, MetricsRegistry } from '../../../api/component/metrics.ts';
import type { AuditSink } from '../filters/audit.ts';
import { isStatusError, newInternalError } from '../../../api/meta/status-error.ts';
import type { UserInfo } from '../../model/user-info.ts';
import { isLongRunning } from '../long-running.ts';
import type { RequestInfo } from '../request-info.ts';
import type { ApiRequest, RequestAudit } from '../request.ts';
import { auditEvent, withoutManagedFields, type AuditEvent } from './event.ts';
import type { AuditDecision, AuditPolicy, Stage } from './policy.ts';

/** One destination of audit events, in one of the modes `batch`, `blocking` and `blocking-strict`. */
export interface AuditBackend {
  /**
   * Processes an event. Never throws. If it returns a promise for the stage `RequestReceived`, the request waits for it, and
   * `false` means that the request must be rejected.
   */
  process(event: AuditEvent): void | Promise<boolean>;
  /** Resolves when all pending events are written, or were given up. */
  close(): Promise<void>;
}

interface AuditOptions {
  readonly policy: AuditPolicy;
  readonly backends: readonly AuditBackend[];
  readonly clock: Clock;
  readonly metrics: MetricsRegistry;
}

/** A write of a client in this process. */
interface InProcessWrite {
  readonly user: UserInfo;
  readonly userAgent: string;
  readonly info: RequestInfo;
  readonly body: unknown;
}

/** The audit log of the control plane, for requests and for writes of this process. */
export interface Audit extends AuditSink {
  /** Runs a write and records it. Rejects without running it if a strict backend cannot store the event. */
  recorded<T>(write: InProcessWrite, run: () => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/** Registers the counters that are there without an audit policy as well, with the value 0. */
export function auditMetrics(metrics: MetricsRegistry): {
  readonly events: Family<Counter>;
  readonly rejected: Family<Counter>;
} {
  const events = metrics.counter({
    name: 'apiserver_audit_event_total',
    help: 'Audit events that were created.',
    labels: [],
  });
  const rejected = metrics.counter({
    name: 'apiserver_audit_requests_rejected_total',
    help: 'Requests that were rejected because their audit event could not be written.',
    labels: [],
  });
  events.with();
  rejected.with();
  return { events, rejected };
}

/** Registers its metrics at once. The options' backends are closed with the result. */
export function createAudit(options: AuditOptions): Audit {
  const { policy, backends } = options;
  const levels = options.metrics.counter({
    name: 'apiserver_audit_level_total',
    help: 'Requests by the level at which they are audited.',
    labels: ['level'],
  });
  const { events, rejected } = auditMetrics(options.metrics);
  const recording = { clock: options.clock, backends, events };
  return {
    received(request) {
      const { user, info } = request;
      const decision = policy.decide({ user, info });
      levels.with(decision.level).inc();
      if (decision.level === 'None') return;
      const record = new RequestRecord(request, { ...recording, decision });
      request.audited = record;
      const stored = record.reach('RequestReceived');
      request.exchange.onClose(() => record.closed());
      return stored?.then((isStored) => {
        if (isStored) return;
        rejected.with().inc();
        throw newInternalError('failed to store audit event');
      });
    },
    async recorded(write, run) {
      const decision = policy.decide(write);
      levels.with(decision.level).inc();
      if (decision.level === 'None') return run();
      const record = new WriteRecord(write, { ...recording, decision });
      if (!(await record.reach('RequestReceived', 0, undefined))) {
        rejected.with().inc();
        throw newInternalError('failed to store audit event');
      }
      try {
        const answer = await run();
        await record.reach('ResponseComplete', write.info.verb === 'create' ? 201 : 200, answer);
        return answer;
      } catch (error) {
        const status = isStatusError(error) ? error.status : newInternalError(String(error)).status;
        await record.reach('ResponseComplete', status.code ?? 500, status);
        throw error;
      }
    },
    async close() {
      for (const backend of backends) await backend.close();
    },
  };
}

/** Returns a function that counts lost events of a backend. */
export function droppedCounter(metrics: MetricsRegistry, plugin: string): (count: number) => void {
  const errors = metrics.counter({
    name: 'apiserver_audit_error_total',
    help: 'Audit events that were lost.',
    labels: ['plugin'],
  });
  return (count) => errors.with(plugin).inc(count);
}

/** How a request or a write is recorded. */
interface Recording {
  readonly decision: AuditDecision;
  readonly clock: Clock;
  readonly backends: readonly AuditBackend[];
  readonly events: Family<Counter>;
}

class RequestRecord implements RequestAudit {
  readonly #request: ApiRequest;
  readonly #decision: AuditDecision;
  readonly #clock: Clock;
  readonly #backends: readonly AuditBackend[];
  readonly #events: Family<Counter>;
  readonly #impersonator;
  #bodyFields: { name?: string; uid?: string; resourceVersion?: string } = {};
  /** The request body as JSON text, because handlers may modify the object. */
  #body: string | undefined;
  #answer: Buffer | object | (() => object) | undefined;
  #status: Readonly<Record<string, unknown>> | undefined;
  #isComplete = false;
  #isHandled = false;
  #isClosed = false;

  constructor(request: ApiRequest, { decision, clock, backends, events }: Recording) {
    this.#request = request;
    this.#decision = decision;
    this.#clock = clock;
    this.#backends = backends;
    this.#events = events;
    this.#impersonator = request.user;
  }

  bodyIs(value: unknown): void {
    const { level } = this.#decision;
    const metadata =
      typeof value === 'object' && value !== null && 'metadata' in value
        ? (value.metadata as object | null)
        : undefined;
    for (const field of ['name', 'uid', 'resourceVersion'] as const) {
      const text = (metadata as Record<string, unknown> | null | undefined)?.[field];
      if (typeof text === 'string' && text !== '') this.#bodyFields[field] = text;
    }
    if (level === 'Request' || level === 'RequestResponse') this.#body = toJson(value);
  }

  answerIs(object: Buffer | object | (() => object)): void {
    if (this.#decision.level === 'RequestResponse') this.#answer = object;
  }

  statusIs(status: object): void {
    this.#status = status as Readonly<Record<string, unknown>>;
    this.answerIs(status);
  }

  answering(): void {
    if (isLongRunning(this.#request.info)) this.#report('ResponseStarted');
  }

  /** Sends the event of stage Panic, which replaces the final event. */
  panicked(error: unknown): void {
    if (this.#isComplete) return;
    this.#isComplete = true;
    const why = errorMessage(error);
    this.#status = { status: 'Failure', message: `APIServer panic'd: ${why}`, reason: 'InternalError' };
    this.#report('Panic');
  }

  handled(): void {
    this.#isHandled = true;
    this.#complete();
  }

  /** Called when the response is complete, or the client is disconnected. */
  closed(): void {
    this.#isClosed = true;
    this.#complete();
  }

  /**
   * Reports the event `ResponseComplete` at most once, when the request is handled and its response is complete or its client
   * is disconnected. A client that disconnects before its request is handled must not hide what the request does.
   */
  #complete(): void {
    if (!this.#isHandled || !this.#isClosed || this.#isComplete) return;
    this.#isComplete = true;
    this.#report('ResponseComplete');
  }

  /** Sends an event that the request does not wait for. */
  #report(stage: Stage): void {
    this.reach(stage)?.catch(() => undefined);
  }

  /** Sends the event of a stage, unless the policy omits it. Returns a promise if a backend requires the request to wait. */
  reach(stage: Stage): Promise<boolean> | undefined {
    const { level, omitStages } = this.#decision;
    if (omitStages.has(stage)) return undefined;
    const request = this.#request;
    const isEnd = stage === 'ResponseComplete';
    const event = auditEvent({
      level,
      stage,
      auditId: request.auditId,
      requestUri: request.exchange.target,
      info: request.info,
      user: this.#impersonator,
      impersonatedUser: request.impersonator === undefined ? undefined : request.user,
      sourceIps: sourceIps(request),
      userAgent: request.userAgent,
      receivedMs: request.nowMs,
      stageMs: stage === 'RequestReceived' ? request.nowMs : this.#clock.now(),
      annotations: level === 'Metadata' ? request.annotations : withBodies(request),
      bodyFields: this.#bodyFields,
      code: stage === 'RequestReceived' ? 0 : stage === 'Panic' ? 500 : request.status,
      status: this.#status,
      requestObject: stage === 'RequestReceived' ? undefined : this.#object(this.#body),
      responseObject: isEnd ? this.#object(this.#answer) : undefined,
    });
    this.#events.with().inc();
    const waits: Promise<boolean>[] = [];
    for (const backend of this.#backends) {
      const stored = backend.process(event);
      if (stored !== undefined) waits.push(stored);
    }
    return waits.length === 0 ? undefined : Promise.all(waits).then((all) => all.every(Boolean));
  }

  #object(source: string | Buffer | object | (() => object) | undefined): unknown {
    if (source === undefined) return undefined;
    const text = typeof source === 'string' || Buffer.isBuffer(source) ? source.toString() : undefined;
    // A stored object may have more values than a body may have, because its managed fields count as well.
    const value = text !== undefined ? parseExactJson(text) : typeof source === 'function' ? source() : source;
    return this.#decision.omitManagedFields ? withoutManagedFields(value) : value;
  }
}

/** The audit record of one write of a client in this process. */
class WriteRecord {
  readonly #write: InProcessWrite;
  readonly #decision: AuditDecision;
  readonly #clock: Clock;
  readonly #backends: readonly AuditBackend[];
  readonly #events: Family<Counter>;
  readonly #auditId = randomUUID();
  readonly #receivedMs: number;

  constructor(write: InProcessWrite, { decision, clock, backends, events }: Recording) {
    this.#write = write;
    this.#decision = decision;
    this.#clock = clock;
    this.#backends = backends;
    this.#events = events;
    this.#receivedMs = clock.now();
  }

  /**
   * Sends the event of a stage. `answer` is the object, or the Status of a failure. Resolves to whether every strict backend
   * has stored the event.
   */
  async reach(stage: Stage, code: number, answer: unknown): Promise<boolean> {
    const { level, omitStages, omitManagedFields } = this.#decision;
    if (omitStages.has(stage)) return true;
    const { info, user, userAgent, body } = this.#write;
    const isFailure = code >= 400;
    const recordedForm = (object: unknown): unknown => (omitManagedFields ? withoutManagedFields(object) : object);
    const event = auditEvent({
      ...{ level, stage, info, user, userAgent, code },
      auditId: this.#auditId,
      requestUri: info.path,
      impersonatedUser: undefined,
      sourceIps: ['127.0.0.1'],
      receivedMs: this.#receivedMs,
      stageMs: stage === 'RequestReceived' ? this.#receivedMs : this.#clock.now(),
      annotations: undefined,
      bodyFields: {},
      status: isFailure ? (answer as Readonly<Record<string, unknown>>) : undefined,
      requestObject: stage === 'RequestReceived' || level === 'Metadata' ? undefined : recordedForm(body),
      responseObject: level === 'RequestResponse' && answer !== undefined ? recordedForm(answer) : undefined,
    });
    this.#events.with().inc();
    const stored = await Promise.all(this.#backends.map((backend) => backend.process(event)));
    return stored.every((isStored) => isStored !== false);
  }
}

function withBodies({ annotations, bodyAnnotations }: ApiRequest): ReadonlyMap<string, string> | undefined {
  return bodyAnnotations === undefined ? annotations : new Map([...(annotations ?? []), ...bodyAnnotations]);
}

function toJson(value: unknown): string {
  return value === undefined ? 'null' : stringifyJson(value);
}

/** Returns the addresses of the forwarding headers, which a client can set at will, and then that of the peer. */
function sourceIps(request: ApiRequest): string[] {
  const addresses = (request.header('x-forwarded-for') ?? '')
    .split(',')
    .flatMap((text) => canonicalIp(text.trim()) ?? []);
  const real = canonicalIp(request.header('x-real-ip') ?? '');
  if (real !== undefined && !addresses.includes(real)) addresses.push(real);
  const { remoteAddress } = request.exchange.connection;
  const peer = canonicalIp(remoteAddress) ?? remoteAddress;
  if (peer !== '' && addresses.at(-1) !== peer) addresses.push(peer);
  return addresses;
}
