/**
 * The events above the compacted revision, in order: what reads of the past and watches from an old revision are answered
 * from. Owned by the revision log.
 */
import type { StorageEvent, StoredValue } from './storage.ts';

/** What an event costs beside the value that it keeps. */
const EVENT_COST = 200;

export function revisionOf(event: StorageEvent): number {
  return event.type === 'put' ? event.current.revision : event.revision;
}

export function keyOf(event: StorageEvent): string {
  return event.type === 'put' ? event.current.key : event.key;
}

export class EventHistory {
  #events: StorageEvent[] = [];
  /** Bytes that only the history keeps alive. */
  #cost = 0;

  get cost(): number {
    return this.#cost;
  }

  get size(): number {
    return this.#events.length;
  }

  push(event: StorageEvent): void {
    this.#events.push(event);
    this.#cost += EVENT_COST + (event.previous?.value.length ?? 0);
  }

  /** Events above `revision`. */
  after(revision: number): readonly StorageEvent[] {
    const from = this.#indexAfter(revision);
    return from === 0 ? this.#events : this.#events.slice(from);
  }

  /** Forgets events up to `revision` and returns them. */
  dropThrough(revision: number): readonly StorageEvent[] {
    const dropped = this.#events.splice(0, this.#indexAfter(revision));
    for (const event of dropped) this.#cost -= EVENT_COST + (event.previous?.value.length ?? 0);
    return dropped;
  }

  /** The revision through which to drop so that no more than `cost` stays. */
  revisionForCost(cost: number): number {
    let left = this.#cost;
    for (const event of this.#events) {
      left -= EVENT_COST + (event.previous?.value.length ?? 0);
      if (left <= cost) return revisionOf(event);
    }
    return 0;
  }

  /** Keys below `prefix` that changed after `revision`, with what they held at it. */
  statesAt(revision: number, prefix: string): Map<string, StoredValue | undefined> {
    const states = new Map<string, StoredValue | undefined>();
    for (const event of this.after(revision)) {
      const key = keyOf(event);
      if (key.startsWith(prefix) && !states.has(key)) states.set(key, event.previous);
    }
    return states;
  }

  #indexAfter(revision: number): number {
    let low = 0;
    let high = this.#events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const event = this.#events[middle];
      if (event !== undefined && revisionOf(event) <= revision) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Revisions of the records that nobody needs once the event is forgotten. */
export function* superseded(event: StorageEvent): Generator<number, void, undefined> {
  if (event.previous !== undefined && event.previous.revision !== revisionOf(event)) yield event.previous.revision;
  if (event.type === 'delete') yield event.revision;
}
