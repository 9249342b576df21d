/**
 * Provides what both event recorders share: a bounded queue of writes, which are sent one after another, the names of events,
 * and a map that drops the least recently used entries.
 */
import type { Clock } from '../machinery/clock.ts';
import type { EventOptions, EventRecorder, EventType, ObjectReference } from './event-report.ts';

/** The maximum numbers of events that wait, and of entries of each table of a recorder. */
const MAX_WAITING = 1000;
const MAX_REMEMBERED = 4096;

/** An event that a recorder received, and the time at which it received it. */
export interface Report {
  readonly regarding: ObjectReference;
  readonly type: EventType;
  readonly reason: string;
  readonly message: string;
  readonly options: EventOptions;
  readonly at: number;
}

/** Owns the queue. The recorder retries, logs and drops an event that cannot be written. */
export class EventWrites {
  readonly #waiting: (() => Promise<void>)[] = [];
  #writing: Promise<void> | undefined;
  #nameCounter = 0;

  /** Returns a recorder's `event`, which takes the time and queues the report for `write`. `write` must not reject. */
  recording(clock: Clock, write: (report: Report) => Promise<void>): EventRecorder['event'] {
    return (regarding, type, reason, message, options = {}) => {
      const at = clock.now();
      this.#put(() => write({ regarding, type, reason, message, options, at }));
    };
  }

  /** Drops the write if the queue is full. */
  #put(write: () => Promise<void>): void {
    if (this.#waiting.length >= MAX_WAITING) return;
    this.#waiting.push(write);
    this.#writing ??= this.#drain();
  }

  /** Resolves when all queued events were written or dropped. */
  async flush(): Promise<void> {
    await this.#writing;
  }

  async #drain(): Promise<void> {
    // Callers report in the middle of their work, so the first write starts after it.
    await Promise.resolve();
    for (let write = this.#waiting.shift(); write !== undefined; write = this.#waiting.shift()) await write();
    this.#writing = undefined;
  }

  /** Returns the name of an event, like client-go: the name of the object, a dot, and the time in hexadecimal nanoseconds. */
  nameOf(regarding: ObjectReference, atMs: number): string {
    this.#nameCounter = (this.#nameCounter + 1) % 1_000_000;
    const suffix = (BigInt(atMs) * 1_000_000n + BigInt(this.#nameCounter)).toString(16);
    return `${regarding.name ?? ''}.${suffix}`;
  }
}

/** Returns the namespace of the event: that of its object, or `default`. */
export function namespaceOf(regarding: ObjectReference): string {
  return regarding.namespace === undefined || regarding.namespace === '' ? 'default' : regarding.namespace;
}

/** Returns the key of an object in the tables of recorders. */
export function subjectOf({ apiVersion, kind, namespace, name, uid, fieldPath }: ObjectReference): string {
  return [apiVersion, kind, namespace, name, uid, fieldPath].join('\u0001');
}

/** Adds an entry, and drops the least recently used one if there are too many. */
export function remember<T>(map: Map<string, T>, key: string, value: T): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= MAX_REMEMBERED) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    return;
  }
}
