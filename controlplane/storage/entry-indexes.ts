/**
 * Indexes a watch cache by label value and by selectable field, so that the cost of a list depends on its result and not on the
 * size of the cache. A label gets an index when selectors use it repeatedly.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { CachedObject } from './cached-object.ts';
import type { IndexableRequirement } from './selection.ts';

/** The number of entries from which on an index is faster than a scan. */
const WORTH_INDEXING = 200;
/** The maximum number of indexed labels. The least recently used one is dropped. */
const LABEL_INDEXES = 16;
/** The maximum number of labels of which one use is remembered. */
const REMEMBERED = 64;
/** The number of entries that are read at once, which takes a few milliseconds. */
const PIECE = 250;

type AttributeOf = (entry: CachedObject) => string | undefined;

class EntryIndex {
  readonly #valueOf: AttributeOf;
  readonly #buckets = new Map<string, Set<CachedObject>>();
  /**
   * The entries that are not read yet. The iterator runs over the live map, so entries that are added meanwhile may be read
   * twice but are never missed.
   */
  #unread: Iterator<CachedObject> | undefined;

  constructor(valueOf: AttributeOf, entries: Iterable<CachedObject>) {
    this.#valueOf = valueOf;
    this.#unread = entries[Symbol.iterator]();
  }

  /** Reads `count` more entries. Returns true when there are none left. */
  fill(count: number): boolean {
    for (let left = count; left > 0 && this.#unread !== undefined; left -= 1) {
      const next = this.#unread.next();
      if (next.done === true) this.#unread = undefined;
      else this.add(next.value);
    }
    return this.#unread === undefined;
  }

  add(entry: CachedObject): void {
    const value = this.#valueOf(entry);
    if (value === undefined) return;
    const bucket = this.#buckets.get(value);
    if (bucket === undefined) this.#buckets.set(value, new Set([entry]));
    else bucket.add(entry);
  }

  delete(entry: CachedObject): void {
    const value = this.#valueOf(entry);
    if (value === undefined) return;
    const bucket = this.#buckets.get(value);
    if (bucket?.delete(entry) === true && bucket.size === 0) this.#buckets.delete(value);
  }

  /** Returns the entries of all values together. The sets of different values share no entry. */
  find(values: readonly string[]): CachedObject[] {
    return values.flatMap((value) => [...(this.#buckets.get(value) ?? [])]);
  }

  count(values: readonly string[]): number {
    return values.reduce((sum, value) => sum + (this.#buckets.get(value)?.size ?? 0), 0);
  }
}

/** The live entries of a cache. */
interface IndexedEntries {
  readonly size: number;
  /** Returns all entries. Those that are added meanwhile may be returned twice but are never missed. */
  values(): IterableIterator<CachedObject>;
}

/** The number of label indexes is bounded; field indexes are those that the resource names. */
export class EntryIndexes {
  readonly #indexedFields: ReadonlySet<string>;
  readonly #entries: IndexedEntries;
  /** The indexes by `label:k` and `field:f`, the most recently used one last. */
  readonly #indexes = new Map<string, EntryIndex>();
  readonly #askedOnce = new Set<string>();

  readonly #logger: Logger;

  constructor(indexedFields: readonly string[], entries: IndexedEntries, logger: Logger) {
    this.#logger = logger;
    this.#indexedFields = new Set(indexedFields);
    this.#entries = entries;
  }

  /** Fills the indexes of fields, unless the cache is small. Each step handles one piece. */
  *fillFields(): Generator<void, void, undefined> {
    if (this.#entries.size < WORTH_INDEXING) return;
    for (const field of this.#indexedFields) {
      const index = this.#indexOf('field', field);
      while (index?.fill(PIECE) === false) yield;
    }
  }

  /** Updates all indexes for a changed entry. An index that cannot read an entry is dropped. */
  update(previous: CachedObject | undefined, current: CachedObject | undefined): void {
    for (const [id, index] of this.#indexes) {
      try {
        if (previous !== undefined) index.delete(previous);
        if (current !== undefined) index.add(current);
      } catch (error) {
        this.#indexes.delete(id);
        this.#logger.error(
          { err: error, index: id, key: (current ?? previous)?.key },
          'An index of cached objects failed and is dropped',
        );
      }
    }
  }

  /**
   * Returns the entries that meet one of the requirements, unordered. The caller filters by the others. Returns `undefined` if
   * the caller must scan. Yields between the pieces of an index that is still being filled. The entries are found after the
   * last yield, so they are of one state.
   */
  *candidates(
    requirements: readonly IndexableRequirement[],
  ): Generator<void, readonly CachedObject[] | undefined, undefined> {
    if (this.#entries.size < WORTH_INDEXING) return undefined;
    const found: { readonly id: string; readonly index: EntryIndex; readonly values: readonly string[] }[] = [];
    for (const { kind, key, values } of requirements) {
      const index = this.#indexOf(kind, key);
      if (index !== undefined) found.push({ id: `${kind}:${key}`, index, values });
    }
    for (const { index } of found) while (!index.fill(PIECE)) yield;
    // Events no longer update an index that was dropped meanwhile.
    const current = found.filter(({ id, index }) => this.#indexes.get(id) === index);
    const counted = current.map(({ index, values }) => ({ index, values, count: index.count(values) }));
    const best = counted.sort((a, b) => a.count - b.count)[0];
    return best?.index.find(best.values);
  }

  #indexOf(kind: 'label' | 'field', key: string): EntryIndex | undefined {
    if (kind === 'field' && !this.#indexedFields.has(key)) return undefined;
    const id = `${kind}:${key}`;
    const existing = this.#indexes.get(id);
    if (existing !== undefined) {
      this.#indexes.delete(id);
      this.#indexes.set(id, existing);
      return existing;
    }
    if (kind === 'label' && !this.#askedOnce.delete(id)) {
      if (this.#askedOnce.size >= REMEMBERED) this.#askedOnce.clear();
      this.#askedOnce.add(id);
      return undefined;
    }
    const valueOf: AttributeOf =
      kind === 'field'
        ? (entry) => entry.field(key)
        : (entry) => (Object.hasOwn(entry.labels, key) ? entry.labels[key] : undefined);
    const index = new EntryIndex(valueOf, this.#entries.values());
    this.#indexes.set(id, index);
    this.#dropUnusedLabels();
    return index;
  }

  #dropUnusedLabels(): void {
    const labels = [...this.#indexes.keys()].filter((id) => id.startsWith('label:'));
    for (const id of labels.slice(0, Math.max(0, labels.length - LABEL_INDEXES))) this.#indexes.delete(id);
  }
}
