/** Divides the events of a watch into batches. They are small, because a client that reads nothing keeps one in memory. */
import type { WatchEvent } from '../model/rest.ts';
import type { CacheEntry } from './cache-entry.ts';

/** The number of events with which a batch is full. It is also full with `BATCH_BYTES` of their objects. */
const BATCH_EVENTS = 500;
const BATCH_BYTES = 32 * 1024;

/** Changes of a commit that a group of watches selects. A large commit has several batches, each with whole revisions. */
export interface Batch {
  /** The first and the newest revision that the batch covers. */
  readonly first: number;
  revision: number;
  readonly events: WatchEvent[];
  bytes: number;
}

/** The existing objects with which a watch begins, and the first one that is not delivered yet. */
export interface Initial {
  readonly entries: readonly CacheEntry[];
  next: number;
  readonly endBookmark: boolean;
}

/** Returns the size of the object of an event. */
export const bytesOf = (event: WatchEvent): number => ('entry' in event ? event.entry.bytes.length : 0);

/** Whether a batch takes no further event of another revision. */
export const isFull = (events: number, bytes: number): boolean => events >= BATCH_EVENTS || bytes >= BATCH_BYTES;

/** Creates a batch of one event. */
export const batchOf = (first: number, revision: number, event: WatchEvent): Batch => ({
  first,
  revision,
  events: [event],
  bytes: bytesOf(event),
});

/** Adds an event. The events of one revision stay together, because a paused watch continues after a whole revision. */
export function addTo(batches: Batch[], revision: number, event: WatchEvent): void {
  const last = batches.at(-1);
  if (last === undefined || (isFull(last.events.length, last.bytes) && revision > last.revision)) {
    batches.push(batchOf((last?.revision ?? revision - 1) + 1, revision, event));
    return;
  }
  last.events.push(event);
  last.bytes += bytesOf(event);
  last.revision = revision;
}

/** Takes the next existing objects as ADDED events, until a batch is full. Returns an empty list if none is left. */
export function nextInitial(initial: Initial): WatchEvent[] {
  const events: WatchEvent[] = [];
  for (let bytes = 0; !isFull(events.length, bytes); initial.next += 1) {
    const entry = initial.entries[initial.next];
    if (entry === undefined) break;
    events.push({ type: 'ADDED', entry });
    bytes += entry.bytes.length;
  }
  return events;
}
