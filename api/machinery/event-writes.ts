/**
 * What both recorders of events are made of: the bounded queue of writes, which go out one after another, the names of events,
 * and a memory that forgets what was used least recently.
 */
import type { EventOptions, EventType, ObjectReference } from './event-recorder.ts';

const LONGEST_QUEUE = 1000;
const MOST_REMEMBERED = 4096;

/** An event that a recorder received, and the time. */
export interface Report {
  readonly regarding: ObjectReference;
  readonly type: EventType;
  readonly reason: string;
  readonly message: string;
  readonly options: EventOptions;
  readonly at: number;
}

export class EventWrites {
  readonly #waiting: (() => Promise<void>)[] = [];
  #writing: Promise<void> | undefined;
  #nameCounter = 0;

  /** What does not fit is dropped. `write` never rejects. */
  put(write: () => Promise<void>): void {
    if (this.#waiting.length >= LONGEST_QUEUE) return;
    this.#waiting.push(write);
    this.#writing ??= this.#drain();
  }

  async flush(): Promise<void> {
    await this.#writing;
  }

  async #drain(): Promise<void> {
    // callers report in the middle of their work: start after it
    await Promise.resolve();
    for (let write = this.#waiting.shift(); write !== undefined; write = this.#waiting.shift()) await write();
    this.#writing = undefined;
  }

  /** Nanoseconds in hexadecimal, as client-go names events. */
  nameOf(regarding: ObjectReference, atMs: number): string {
    this.#nameCounter = (this.#nameCounter + 1) % 1_000_000;
    const suffix = (BigInt(atMs) * 1_000_000n + BigInt(this.#nameCounter)).toString(16);
    return `${regarding.name ?? ''}.${suffix}`;
  }
}

export function namespaceOf(regarding: ObjectReference): string {
  return regarding.namespace === undefined || regarding.namespace === '' ? 'default' : regarding.namespace;
}

export function subjectOf({ apiVersion, kind, namespace, name, uid, fieldPath }: ObjectReference): string {
  return [apiVersion, kind, namespace, name, uid, fieldPath].join('\u0001');
}

/** The least recently used goes when there are too many. */
export function remember<T>(map: Map<string, T>, key: string, value: T): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= MOST_REMEMBERED) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    return;
  }
}
