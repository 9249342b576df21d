/**
 * All versions of the objects of one resource: what is there, in order of keys, and what changed above the compacted revision.
 * The one place where the storage keeps values: the revision log writes here as it commits, and the resource's watch cache
 * reads the same maps.
 */
import { SortedKeys } from './sorted-keys.ts';

export interface StoredValue {
  readonly key: string;
  readonly value: Buffer;
  readonly createRevision: number;
  /** Revision of the last write of this key. */
  readonly revision: number;
}

/** A value in the maps. `view` belongs to the watch cache `viewOwner`: the form that it serves, made once. */
export class StoredVersion implements StoredValue {
  readonly key: string;
  readonly value: Buffer;
  readonly createRevision: number;
  readonly revision: number;
  viewOwner: object | undefined = undefined;
  view: object | undefined = undefined;

  constructor(key: string, value: Buffer, createRevision: number, revision: number) {
    this.key = key;
    this.value = value;
    this.createRevision = createRevision;
    this.revision = revision;
  }
}

/** A change of one key at one revision. `view` belongs to the watch cache, as that of a version. */
export class VersionChange {
  readonly revision: number;
  readonly key: string;
  /** `undefined`: the key is deleted. */
  readonly current: StoredVersion | undefined;
  /** `undefined`: the key is created. */
  readonly previous: StoredVersion | undefined;
  view: object | undefined = undefined;

  constructor(revision: number, key: string, current: StoredVersion | undefined, previous: StoredVersion | undefined) {
    this.revision = revision;
    this.key = key;
    this.current = current;
    this.previous = previous;
  }
}

/** What a change costs beside the value that only the history keeps. */
const CHANGE_BYTES = 200;

/** Bytes that the history keeps alive for a change. */
export function costOf({ previous }: VersionChange): number {
  return CHANGE_BYTES + (previous?.value.length ?? 0);
}

export class ResourceVersions {
  readonly #current = new Map<string, StoredVersion>();
  readonly #keys = new SortedKeys();
  #history: VersionChange[] = [];

  get size(): number {
    return this.#current.size;
  }

  /** The revision of the newest change that history has; 0 without one. */
  get newest(): number {
    return this.#history.at(-1)?.revision ?? 0;
  }

  get(key: string): StoredVersion | undefined {
    return this.#current.get(key);
  }

  /** In no order; what is added meanwhile may be seen, what is deleted may not. */
  values(): IterableIterator<StoredVersion> {
    return this.#current.values();
  }

  count(prefix: string, startAfter = ''): number {
    return this.#keys.count(prefix, startAfter);
  }

  /** In order, above `startAfter`. */
  keys(prefix: string, startAfter = ''): Iterable<string> {
    return this.#keys.range(prefix, startAfter);
  }

  /** In order of keys, above `startAfter`. */
  *range(prefix: string, startAfter = ''): Generator<StoredVersion, void, undefined> {
    for (const key of this.keys(prefix, startAfter)) {
      const version = this.#current.get(key);
      if (version !== undefined) yield version;
    }
  }

  /** The same as it was at a revision that is not compacted. */
  *rangeAt(revision: number, prefix: string, startAfter = ''): Generator<StoredVersion, void, undefined> {
    const states = this.#statesAt(revision, prefix);
    const gone = [...states.values()]
      .filter((version) => version !== undefined && version.key > startAfter)
      .sort((a, b) => ((a?.key ?? '') < (b?.key ?? '') ? -1 : 1));
    let next = 0;
    for (const current of this.range(prefix, startAfter)) {
      for (let version = gone[next]; version !== undefined && version.key <= current.key; version = gone[next]) {
        yield version;
        next += 1;
      }
      if (!states.has(current.key)) yield current;
    }
    for (const version of gone.slice(next)) if (version !== undefined) yield version;
  }

  /** What one key held at a revision that is not compacted. */
  getAt(revision: number, key: string): StoredVersion | undefined {
    for (const change of this.after(revision)) if (change.key === key) return change.previous;
    return this.#current.get(key);
  }

  /** Changes above `revision`, in order. */
  *after(revision: number): Generator<VersionChange, void, undefined> {
    for (let at = this.#indexAfter(revision); at < this.#history.length; at += 1) {
      const change = this.#history[at];
      if (change !== undefined) yield change;
    }
  }

  /** Enters a change; into the history as well unless it belongs to what is compacted. */
  apply(change: VersionChange, { isCompacted = false }: { readonly isCompacted?: boolean } = {}): void {
    const { key, current, previous } = change;
    if (current === undefined) {
      this.#current.delete(key);
      this.#keys.delete(key);
    } else {
      this.#current.set(key, current);
      if (previous === undefined) this.#keys.add(key);
    }
    if (!isCompacted) this.#history.push(change);
  }

  /** Forgets changes up to `revision` and returns them. */
  dropThrough(revision: number): readonly VersionChange[] {
    return this.#history.splice(0, this.#indexAfter(revision));
  }

  /** Keys below `prefix` that changed after `revision`, with what they held at it. */
  #statesAt(revision: number, prefix: string): Map<string, StoredVersion | undefined> {
    const states = new Map<string, StoredVersion | undefined>();
    for (const { key, previous } of this.after(revision)) {
      if (key.startsWith(prefix) && !states.has(key)) states.set(key, previous);
    }
    return states;
  }

  #indexAfter(revision: number): number {
    let low = 0;
    let high = this.#history.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#history[middle]?.revision ?? 0) <= revision) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Revisions of the records that are obsolete once the change is compacted. */
export function superseded({ revision, current, previous }: VersionChange): readonly number[] {
  const revisions = previous !== undefined && previous.revision !== revision ? [previous.revision] : [];
  if (current === undefined) revisions.push(revision);
  return revisions;
}
