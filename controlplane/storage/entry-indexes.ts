/**
 * Indexes of a watch cache by label value and by selectable field: those of fields are filled in pieces after the cache is
 * loaded (or at once, when a list comes before that is done), those of labels when a selector asks for one the second
 * time; then kept up to date with every event. A list by selector costs what it finds, not what there is.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { CachedObject } from './cached-object.ts';
import type { IndexableRequirement } from './selection.ts';

/** Below it a scan is as good. */
const WORTH_INDEXING = 200;
const LABEL_INDEXES = 16;
const REMEMBERED = 64;
/** Entries that are read at a time: a few milliseconds. */
const PIECE = 250;

type AttributeOf = (entry: CachedObject) => string | undefined;

class EntryIndex {
  readonly #valueOf: AttributeOf;
  readonly #buckets = new Map<string, Set<CachedObject>>();
  /** Entries that are still to be read. It goes over the live map: what is added meanwhile may be seen twice, never missed. */
  #unread: Iterator<CachedObject> | undefined;

  constructor(valueOf: AttributeOf, entries: Iterable<CachedObject>) {
    this.#valueOf = valueOf;
    this.#unread = entries[Symbol.iterator]();
  }

  /** Reads so many entries more; true when there are none left. */
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

  /** Of all values together; the sets of different values share no entry. */
  find(values: readonly string[]): CachedObject[] {
    this.fill(Infinity);
    return values.flatMap((value) => [...(this.#buckets.get(value) ?? [])]);
  }

  count(values: readonly string[]): number {
    this.fill(Infinity);
    return values.reduce((sum, value) => sum + (this.#buckets.get(value)?.size ?? 0), 0);
  }
}

/** The live entries of a cache. */
export interface IndexedEntries {
  readonly size: number;
  /** What is added meanwhile may be seen twice, never missed. */
  values(): IterableIterator<CachedObject>;
}

export class EntryIndexes {
  readonly #indexedFields: ReadonlySet<string>;
  readonly #entries: IndexedEntries;
  /** By `label:k` and `field:f`; the least recently used label index goes first. */
  readonly #indexes = new Map<string, EntryIndex>();
  readonly #askedOnce = new Set<string>();

  readonly #logger: Logger;

  constructor(indexedFields: readonly string[], entries: IndexedEntries, logger: Logger) {
    this.#logger = logger;
    this.#indexedFields = new Set(indexedFields);
    this.#entries = entries;
  }

  /** Fills the indexes of fields; a piece a step. */
  *fillFields(): Generator<void, void, undefined> {
    if (this.#entries.size < WORTH_INDEXING) return;
    for (const field of this.#indexedFields) {
      const index = this.#indexOf('field', field);
      while (index?.fill(PIECE) === false) yield;
    }
  }

  /** An index that cannot read an entry is dropped: lists scan, or build it again. */
  update(previous: CachedObject | undefined, current: CachedObject | undefined): void {
    for (const [id, index] of this.#indexes) {
      try {
        if (previous !== undefined) index.delete(previous);
        if (current !== undefined) index.add(current);
      } catch (error) {
        this.#indexes.delete(id);
        this.#logger.error(
          { err: error, index: id, key: (current ?? previous)?.key },
          'An index failed and is dropped',
        );
      }
    }
  }

  /** Entries that meet one of the requirements (the rest is to be filtered), in no order; `undefined`: scan. */
  candidates(requirements: readonly IndexableRequirement[]): CachedObject[] | undefined {
    if (this.#entries.size < WORTH_INDEXING) return undefined;
    let best: { readonly index: EntryIndex; readonly values: readonly string[]; readonly count: number } | undefined;
    for (const { kind, key, values } of requirements) {
      const index = this.#indexOf(kind, key);
      if (index === undefined) continue;
      const count = index.count(values);
      if (best === undefined || count < best.count) best = { index, values, count };
    }
    return best?.index.find(best.values);
  }

  #indexOf(kind: 'label' | 'field', key: string): EntryIndex | undefined {
    if (kind === 'field' && !this.#indexedFields.has(key)) return undefined;
    const id = `${kind}:${key}`;
    const known = this.#indexes.get(id);
    if (known !== undefined) {
      this.#indexes.delete(id);
      this.#indexes.set(id, known);
      return known;
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
