/** A change in the watch cache, and what it looks like to a selection: objects that enter one are ADDED, those that leave it DELETED. */
import type { WatchEvent } from '../registry/rest.ts';
import type { CachedObject } from './cached-object.ts';
import type { Selection } from './selection.ts';

type Shown = Extract<WatchEvent, { type: 'ADDED' | 'MODIFIED' | 'DELETED' }>;

const fieldOf = (entry: CachedObject, path: string): string => entry.field(path);

export function selects(selection: Selection, entry: CachedObject): boolean {
  if (selection.namespace !== '' && entry.namespace !== selection.namespace) return false;
  if (selection.name !== '' && entry.name !== selection.name) return false;
  return selection.everything || selection.matches(entry, (one, path) => fieldOf(one as CachedObject, path));
}

export class CacheEvent {
  readonly revision: number;
  readonly key: string;
  readonly current: CachedObject | undefined;
  readonly previous: CachedObject | undefined;
  /** One event object per type, shared by all watches, so that its encodings are as well. */
  #added: Shown | undefined;
  #modified: Shown | undefined;
  #deleted: Shown | undefined;

  constructor(revision: number, key: string, current: CachedObject | undefined, previous: CachedObject | undefined) {
    this.revision = revision;
    this.key = key;
    this.current = current;
    this.previous = previous;
  }

  /** `undefined` when the selection does not see it. */
  shownTo(selection: Selection): WatchEvent | undefined {
    const { current, previous } = this;
    const now = current !== undefined && selects(selection, current);
    const before = previous !== undefined && selects(selection, previous);
    if (now) return before ? this.#asModified(current) : this.#asAdded(current);
    return before ? this.#asDeleted(previous) : undefined;
  }

  #asAdded(entry: CachedObject): WatchEvent {
    this.#added ??= { type: 'ADDED', entry };
    return this.#added;
  }

  #asModified(entry: CachedObject): WatchEvent {
    this.#modified ??= { type: 'MODIFIED', entry };
    return this.#modified;
  }

  /** Shows the last state that the watch knew, at the revision of the event. */
  #asDeleted(previous: CachedObject): WatchEvent {
    this.#deleted ??= { type: 'DELETED', entry: previous.at(this.revision) };
    return this.#deleted;
  }
}

/** Changes above the compacted revision, in order. */
export class CacheHistory {
  #events: CacheEvent[] = [];

  push(event: CacheEvent): void {
    this.#events.push(event);
  }

  get newest(): number {
    return this.#events.at(-1)?.revision ?? 0;
  }

  dropThrough(revision: number): void {
    this.#events.splice(0, this.#indexAfter(revision));
  }

  *after(revision: number): Generator<CacheEvent, void, undefined> {
    for (let at = this.#indexAfter(revision); at < this.#events.length; at += 1) {
      const event = this.#events[at];
      if (event !== undefined) yield event;
    }
  }

  /** Keys that changed after `revision`, with what they held at it. */
  statesAt(revision: number): Map<string, CachedObject | undefined> {
    const states = new Map<string, CachedObject | undefined>();
    for (const event of this.after(revision)) {
      if (!states.has(event.key)) states.set(event.key, event.previous);
    }
    return states;
  }

  #indexAfter(revision: number): number {
    let low = 0;
    let high = this.#events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#events[middle]?.revision ?? 0) <= revision) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
