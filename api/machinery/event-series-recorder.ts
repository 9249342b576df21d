/**
 * Events of events.k8s.io: the first of a kind is created, those that follow within six minutes make it a series whose count is
 * patched. The scheduler reports by it.
 */
import { isNotFound } from '../meta/status-error.ts';
import { formatMicroTime } from './clock.ts';
import {
  namespaceOf,
  subjectOf,
  type EventOptions,
  type EventRecorder,
  type EventRecorderOptions,
  type EventType,
  type ObjectReference,
} from './event-recorder.ts';
import { eventsV1 } from './resources.ts';

const SERIES_ENDS_AFTER_MS = 360_000;
const LONGEST_QUEUE = 1000;
const MOST_REMEMBERED = 4096;
/** The API's limit of `note`. */
const LONGEST_NOTE_BYTES = 1024;

interface Series {
  readonly name: string;
  readonly namespace: string;
  count: number;
  at: number;
}

export class EventSeriesRecorder implements EventRecorder {
  readonly #options: EventRecorderOptions;
  readonly #series = new Map<string, Series>();
  readonly #queue: (() => Promise<void>)[] = [];
  #writing: Promise<void> | undefined;
  #nameCounter = 0;

  constructor(options: EventRecorderOptions) {
    this.#options = options;
  }

  event(
    regarding: ObjectReference,
    type: EventType,
    reason: string,
    message: string,
    options: EventOptions = {},
  ): void {
    if (this.#queue.length >= LONGEST_QUEUE) return;
    const at = this.#options.clock.now();
    this.#queue.push(() => this.#write({ regarding, type, reason, message, options, at }));
    this.#writing ??= this.#drain();
  }

  async flush(): Promise<void> {
    await this.#writing;
  }

  async #drain(): Promise<void> {
    await Promise.resolve();
    for (let write = this.#queue.shift(); write !== undefined; write = this.#queue.shift()) {
      try {
        await write();
      } catch (error) {
        this.#options.logger.debug({ error: String(error) }, 'an event was not recorded');
      }
    }
    this.#writing = undefined;
  }

  async #write(report: {
    readonly regarding: ObjectReference;
    readonly type: EventType;
    readonly reason: string;
    readonly message: string;
    readonly options: EventOptions;
    readonly at: number;
  }): Promise<void> {
    const { client, component, host = '' } = this.#options;
    const { regarding, type, reason, message, options, at } = report;
    const related = options.related === undefined ? '' : subjectOf(options.related);
    const key = [subjectOf({ ...regarding }), type, reason, options.action, related].join('\u0000');
    const known = this.#series.get(key);
    this.#series.delete(key);
    if (known !== undefined && at - known.at <= SERIES_ENDS_AFTER_MS) {
      const series = { count: known.count + 1, lastObservedTime: formatMicroTime(at) };
      try {
        await client.patch(eventsV1, known.namespace, known.name, 'strategic', { series });
        this.#remember(key, { ...known, count: series.count, at });
        return;
      } catch (error) {
        if (!isNotFound(error)) throw error;
      }
    }
    this.#nameCounter = (this.#nameCounter + 1) % 1_000_000;
    const suffix = (BigInt(at) * 1_000_000n + BigInt(this.#nameCounter)).toString(16);
    const name = `${regarding.name ?? ''}.${suffix}`;
    const namespace = namespaceOf(regarding);
    await client.create(eventsV1, namespace, {
      apiVersion: 'events.k8s.io/v1',
      kind: 'Event',
      metadata: {
        name,
        namespace,
        ...(options.annotations === undefined ? {} : { annotations: { ...options.annotations } }),
      },
      eventTime: formatMicroTime(at),
      reportingController: component,
      reportingInstance: `${component}${host === '' ? '' : `-${host}`}`,
      action: options.action ?? reason,
      reason,
      regarding: { ...regarding },
      ...(options.related === undefined ? {} : { related: { ...options.related } }),
      note: shorten(message),
      type,
    });
    this.#remember(key, { name, namespace, count: 1, at });
  }

  #remember(key: string, series: Series): void {
    this.#series.set(key, series);
    if (this.#series.size <= MOST_REMEMBERED) return;
    for (const oldest of this.#series.keys()) {
      this.#series.delete(oldest);
      return;
    }
  }
}

function shorten(message: string): string {
  if (Buffer.byteLength(message) <= LONGEST_NOTE_BYTES) return message;
  return `${Buffer.from(message)
    .subarray(0, LONGEST_NOTE_BYTES - 6)
    .toString('utf8')
    .replace(/�+$/, '')}…`;
}
