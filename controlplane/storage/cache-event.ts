/**
 * Shows a change in the watch cache to a selection. Objects that begin to match are ADDED, and those that no longer match are
 * DELETED.
 */
import type { WatchEvent } from '../model/rest.ts';
import type { CachedObject, ObjectContext } from './cached-object.ts';
import type { Selection } from './selection.ts';

type Shown = Extract<WatchEvent, { type: 'ADDED' | 'MODIFIED' | 'DELETED' }>;

const fieldOf = (entry: CachedObject, path: string): string => entry.field(path);

/** Whether the object is in the namespace, has the name and matches the selectors. */
export function selects(selection: Selection, entry: CachedObject): boolean {
  if (selection.namespace !== '' && entry.namespace !== selection.namespace) return false;
  if (selection.name !== '' && entry.name !== selection.name) return false;
  return selection.everything || selection.matches(entry, (one, path) => fieldOf(one as CachedObject, path));
}

/** A change of an object. `previous` is undefined for a new object, and `current` for a deleted one. */
export class CacheEvent {
  readonly revision: number;
  readonly key: string;
  readonly current: CachedObject | undefined;
  readonly previous: CachedObject | undefined;
  /** There is one event object of each type. All watches share it and therefore its encodings. */
  #added: Shown | undefined;
  #modified: Shown | undefined;
  #deleted: Shown | undefined;

  constructor(revision: number, key: string, current: CachedObject | undefined, previous: CachedObject | undefined) {
    this.revision = revision;
    this.key = key;
    this.current = current;
    this.previous = previous;
  }

  /** Whether the objects of the event belong to that cache. */
  isOf(context: ObjectContext): boolean {
    return (this.current ?? this.previous)?.isOf(context) === true;
  }

  /** Returns `undefined` if the change is not visible to the selection. */
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

  /** Shows the last state that the watch knew, with the revision of the event. */
  #asDeleted(previous: CachedObject): WatchEvent {
    this.#deleted ??= { type: 'DELETED', entry: previous.at(this.revision) };
    return this.#deleted;
  }
}
