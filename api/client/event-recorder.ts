/**
 * Reports what happens to objects as core/v1 Events. Reporting returns at once and never fails. A repeated event increments the
 * count of the first one, many similar events become one combined event, and an object with too many events is throttled, with
 * the limits of client-go's event correlator. Unlike there, normal events and warnings are limited separately.
 */
import { apiVersionOf, type KubeObject } from '../meta/object.ts';
import { isNotFound, isStatusError } from '../meta/status-error.ts';
import type { Logger } from '../component/logger.ts';
import type { Client, Resource } from './client.ts';
import { formatTime, type Clock } from '../machinery/clock.ts';
import { EventWrites, namespaceOf, remember, subjectOf, type Report } from './event-writes.ts';
import { RateLimiter } from '../machinery/rate-limiter.ts';
import { events } from './resources.ts';
import type { ObjectReference, EventRecorder } from './event-report.ts';

/** Returns the reference to an object. An object from a list may have no kind, so the resource provides it. */
export function referenceTo(object: KubeObject, resource: Resource): ObjectReference {
  const { namespace, name, uid, resourceVersion } = object.metadata;
  return {
    apiVersion: object.apiVersion ?? apiVersionOf(resource),
    kind: object.kind ?? resource.kind,
    ...(namespace === undefined ? {} : { namespace }),
    ...(name === undefined ? {} : { name }),
    ...(uid === undefined ? {} : { uid }),
    ...(resourceVersion === undefined ? {} : { resourceVersion }),
  };
}

/** The source of events and their limits. */
export interface EventRecorderOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The name of the component, for example `kubelet` or `deployment-controller`. */
  readonly component: string;
  readonly host?: string;
  /** The limits for the events of one object and type: the burst, and the events per second. */
  readonly burst?: number;
  readonly qps?: number;
}

/**
 * The number of different messages from which on events of the same object, type and reason are combined into one. The count
 * starts again when no such event has occurred for this time.
 */
const MAX_SIMILAR = 10;
const SIMILAR_WITHIN_MS = 600_000;
/** How often an event is sent to a server that does not respond, and the time between two attempts. */
const WRITE_ATTEMPTS = 4;
const RETRY_AFTER_MS = 10_000;

interface Remembered {
  readonly name: string;
  count: number;
  readonly firstTimestamp: string;
}

interface Similar {
  readonly messages: Set<string>;
  at: number;
}

/** Records Events of core/v1. */
export class CoreEventRecorder implements EventRecorder {
  readonly event: EventRecorder['event'];
  readonly #options: EventRecorderOptions;
  readonly #writes = new EventWrites();
  readonly #remembered = new Map<string, Remembered>();
  readonly #similar = new Map<string, Similar>();
  readonly #limits = new Map<string, RateLimiter>();

  constructor(options: EventRecorderOptions) {
    this.#options = options;
    this.event = this.#writes.recording(options.clock, (report) => this.#record(report));
  }

  /** Resolves when all events reported so far were written or dropped. */
  flush(): Promise<void> {
    return this.#writes.flush();
  }

  async #record(report: Report): Promise<void> {
    const combined = this.#isCombined(report);
    const subject = subjectOf(report.regarding);
    if (!this.#limitOf(`${subject}\u0000${report.type}`).tryAccept()) return;
    const message = combined ? `(combined from similar events): ${report.message}` : report.message;
    const key = [subject, report.type, report.reason, combined ? '' : report.message].join('\u0000');
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#write(report, key, message);
        return;
      } catch (error) {
        // A response of the server is final, for example because the namespace is terminating or a permission is missing.
        if (isStatusError(error) || attempt === WRITE_ATTEMPTS) {
          this.#options.logger.debug({ reason: report.reason, err: error }, 'An event was not recorded');
          return;
        }
        await this.#options.clock.sleep(RETRY_AFTER_MS);
      }
    }
  }

  /** Whether the event is combined with similar ones. Counts its message among theirs. */
  #isCombined({ regarding, type, reason, message, at }: Report): boolean {
    const key = [subjectOf(regarding), type, reason].join('\u0000');
    let similar = this.#similar.get(key);
    if (similar === undefined || at - similar.at > SIMILAR_WITHIN_MS) similar = { messages: new Set(), at };
    similar.at = at;
    similar.messages.add(message);
    remember(this.#similar, key, similar);
    if (similar.messages.size < MAX_SIMILAR) return false;
    const [oldest] = similar.messages;
    if (oldest !== undefined && similar.messages.size > MAX_SIMILAR) similar.messages.delete(oldest);
    return true;
  }

  async #write(report: Report, key: string, message: string): Promise<void> {
    const { client, component, host } = this.#options;
    const namespace = namespaceOf(report.regarding);
    const now = formatTime(report.at);
    const previous = this.#remembered.get(key);
    if (previous !== undefined) {
      const patch = { count: previous.count + 1, lastTimestamp: now, message };
      try {
        await client.patch(events, namespace, previous.name, { type: 'strategic', body: patch });
        previous.count++;
        remember(this.#remembered, key, previous);
        return;
      } catch (error) {
        if (!isNotFound(error)) throw error;
      }
    }
    const count = previous === undefined ? 1 : previous.count + 1;
    const firstTimestamp = previous?.firstTimestamp ?? now;
    const name = this.#writes.nameOf(report.regarding, report.at);
    await client.create(events, namespace, {
      apiVersion: 'v1',
      kind: 'Event',
      metadata: {
        name,
        namespace,
        ...(report.options.annotations === undefined ? {} : { annotations: { ...report.options.annotations } }),
      },
      involvedObject: { ...report.regarding },
      reason: report.reason,
      message,
      source: { component, ...(host === undefined ? {} : { host }) },
      firstTimestamp,
      lastTimestamp: now,
      count,
      type: report.type,
      eventTime: null,
      reportingComponent: component,
      reportingInstance: host ?? '',
    });
    remember(this.#remembered, key, { name, count, firstTimestamp });
  }

  /** Returns the rate limit of the events with the key, which names an object and a type. */
  #limitOf(key: string): RateLimiter {
    const { clock, burst = 25, qps = 1 / 300 } = this.#options;
    const limit = this.#limits.get(key) ?? new RateLimiter({ clock, qps, burst });
    remember(this.#limits, key, limit);
    return limit;
  }
}
