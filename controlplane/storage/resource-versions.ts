/**
 * Holds all versions of the objects of one resource: the current values in order of keys, and the changes above the compacted
 * revision. It is the only place where the storage keeps values.
 */
import { inflateRawSync } from 'node:zlib';
import { SortedKeys } from './sorted-keys.ts';

/** The current or a former value of a key. */
export interface StoredValue {
  readonly key: string;
  readonly value: Buffer;
  readonly createRevision: number;
  /** The revision of the write of this value. */
  readonly revision: number;
}

/**
 * A value in the maps. `view` belongs to the watch cache `viewOwner`. It is the form that the cache serves, and is built once.
 */
export class StoredVersion implements StoredValue {
  readonly key: string;
  readonly createRevision: number;
  readonly revision: number;
  /** The number of bytes of `value`. */
  readonly sizeBytes: number;
  viewOwner: object | undefined = undefined;
  view: object | undefined = undefined;
  /** `undefined` once the value is compressed. */
  #value: Buffer | undefined;
  #deflated: Buffer | undefined;
  #inflated: WeakRef<Buffer> | undefined;

  constructor(key: string, value: Buffer, createRevision: number, revision: number) {
    this.key = key;
    this.createRevision = createRevision;
    this.revision = revision;
    this.sizeBytes = value.length;
    this.#value = value;
  }

  get value(): Buffer {
    return this.#value ?? this.#inflate();
  }

  /** Keeps only the raw deflate stream (RFC 1951) of the value. */
  replaceByDeflated(deflated: Buffer): void {
    this.#deflated = deflated;
    this.#value = undefined;
  }

  /** Inflates once for several reads in one turn of the event loop: within a turn, a weak reference keeps its value. */
  #inflate(): Buffer {
    const inflated = this.#inflated?.deref();
    if (inflated !== undefined) return inflated;
    if (this.#deflated === undefined) throw new Error(`the version ${this.revision} of ${this.key} has no value`);
    const value = inflateRawSync(this.#deflated, { maxOutputLength: this.sizeBytes });
    this.#inflated = new WeakRef(value);
    return value;
  }
}

/** A change of one key at one revision. `view` is the event that a watch cache shows for the change. */
export class VersionChange {
  readonly revision: number;
  readonly key: string;
  /** `undefined` if the key was deleted. */
  readonly current: StoredVersion | undefined;
  /** `undefined` if the key was created. */
  readonly previous: StoredVersion | undefined;
  view: object | undefined = undefined;

  constructor(revision: number, key: string, current: StoredVersion | undefined, previous: StoredVersion | undefined) {
    this.revision = revision;
    this.key = key;
    this.current = current;
    this.previous = previous;
  }
}

/** The approximate size of a change besides the value that only the history keeps. */
const CHANGE_BYTES = 200;

/** Returns the bytes that a change adds to the history: those on the disk, whether or not the value is compressed in memory. */
export function costOf({ previous }: VersionChange): number {
  return CHANGE_BYTES + (previous?.sizeBytes ?? 0);
}

/** The current values of one resource, and the changes from which its former states can be read. */
export class ResourceVersions {
  readonly #current = new Map<string, StoredVersion>();
  readonly #keys = new SortedKeys();
  #history: VersionChange[] = [];

  get size(): number {
    return this.#current.size;
  }

  /** The revision of the newest change in the history. It is 0 if there is none. */
  get newest(): number {
    return this.#history.at(-1)?.revision ?? 0;
  }

  get(key: string): StoredVersion | undefined {
    return this.#current.get(key);
  }

  /** Returns the values unordered. Values that are added meanwhile may appear, and deleted ones do not. */
  values(): IterableIterator<StoredVersion> {
    return this.#current.values();
  }

  /** Returns the number of keys with the prefix that are greater than `startAfter`. */
  count(prefix: string, startAfter = ''): number {
    return this.#keys.count(prefix, startAfter);
  }

  /** Yields the values above `startAfter`, in the order of their keys. */
  *range(prefix: string, startAfter = ''): Generator<StoredVersion, void, undefined> {
    for (const keys of this.#keys.runs(prefix, startAfter)) {
      for (const key of keys) {
        const version = this.#current.get(key);
        if (version !== undefined) yield version;
      }
    }
  }

  /** Returns the first `limit` values that `range` yields, or all without a limit. */
  page(prefix: string, startAfter: string, limit = Number.POSITIVE_INFINITY): StoredVersion[] {
    const found: StoredVersion[] = [];
    for (const keys of this.#keys.runs(prefix, startAfter)) {
      for (const key of keys) {
        const version = this.#current.get(key);
        if (version !== undefined && found.push(version) === limit) return found;
      }
    }
    return found;
  }

  /** Yields the values as they were at a revision that is not compacted. */
  *rangeAt(revision: number, prefix: string, startAfter = ''): Generator<StoredVersion, void, undefined> {
    const states = this.#statesAt(revision, prefix);
    const former = [...states.values()]
      .filter((version) => version !== undefined && version.key > startAfter)
      .sort((a, b) => ((a?.key ?? '') < (b?.key ?? '') ? -1 : 1));
    let next = 0;
    for (const current of this.range(prefix, startAfter)) {
      for (let version = former[next]; version !== undefined && version.key <= current.key; version = former[next]) {
        yield version;
        next += 1;
      }
      if (!states.has(current.key)) yield current;
    }
    for (const version of former.slice(next)) if (version !== undefined) yield version;
  }

  getAt(revision: number, key: string): StoredVersion | undefined {
    for (const change of this.after(revision)) if (change.key === key) return change.previous;
    return this.#current.get(key);
  }

  /** Yields the changes above `revision`, in order. */
  *after(revision: number): Generator<VersionChange, void, undefined> {
    for (let at = this.#indexAfter(revision); at < this.#history.length; at += 1) {
      const change = this.#history[at];
      if (change !== undefined) yield change;
    }
  }

  /** Adds a change, and adds it to the history unless it is compacted. */
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

  /** Drops the changes up to `revision` and returns them. */
  dropThrough(revision: number): readonly VersionChange[] {
    return this.#history.splice(0, this.#indexAfter(revision));
  }

  /** Returns the keys below `prefix` that changed after `revision`, with their values at that revision. */
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

/** Returns the revisions of the records that are obsolete once the change is compacted. */
export function superseded({ revision, current, previous }: VersionChange): readonly number[] {
  const revisions = previous !== undefined && previous.revision !== revision ? [previous.revision] : [];
  if (current === undefined) revisions.push(revision);
  return revisions;
}
