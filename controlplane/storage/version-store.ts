/** Holds the versions of all resources, in one `ResourceVersions` for each. */
import { HistoryCompression } from './history-compression.ts';
import type { LogRecord } from './log-backend.ts';
import { costOf, ResourceVersions, StoredVersion, VersionChange } from './resource-versions.ts';

/** The versions of a resource exist from the first call of `of`, or from its first record. */
export class VersionStore {
  /** The versions by `/<group>/<resource>/`. */
  readonly #resources = new Map<string, ResourceVersions>();
  readonly #compression = new HistoryCompression();
  #historyBytes = 0;

  /** The bytes of the history, before any compression. */
  get historyBytes(): number {
    return this.#historyBytes;
  }

  /** Returns the versions of a resource. The object is the same as long as the store lives. */
  of(resource: string): ResourceVersions {
    let versions = this.#resources.get(resource);
    if (versions === undefined) this.#resources.set(resource, (versions = new ResourceVersions()));
    return versions;
  }

  *counts(): Generator<readonly [resource: string, count: number]> {
    for (const [resource, versions] of this.#resources) yield [resource, versions.size];
  }

  get(key: string): StoredVersion | undefined {
    return this.#resources.get(resourceOf(key))?.get(key);
  }

  getAt(revision: number, key: string): StoredVersion | undefined {
    return this.#resources.get(resourceOf(key))?.getAt(revision, key);
  }

  /** Returns the number of keys with the prefix that are greater than `startAfter`. */
  count(prefix: string, startAfter: string): number {
    return this.#below(prefix).reduce((sum, versions) => sum + versions.count(prefix, startAfter), 0);
  }

  *range(prefix: string, startAfter: string): Generator<StoredVersion, void, undefined> {
    for (const versions of this.#below(prefix)) yield* versions.range(prefix, startAfter);
  }

  *rangeAt(revision: number, prefix: string, startAfter: string): Generator<StoredVersion, void, undefined> {
    for (const versions of this.#below(prefix)) yield* versions.rangeAt(revision, prefix, startAfter);
  }

  /** Returns the changes of all resources below `prefix` and above `revision`, in order. */
  after(revision: number, prefix: string): readonly VersionChange[] {
    const parts = this.#below(prefix).map((versions) => [...versions.after(revision)]);
    const changes = parts.length === 1 ? (parts[0] ?? []) : parts.flat().sort((a, b) => a.revision - b.revision);
    return changes.filter(({ key }) => key.startsWith(prefix));
  }

  /** Adds a record with its value in the form that readers see. An `undefined` value deletes the key. */
  enter(record: LogRecord, value: Buffer | undefined, options: { readonly isCompacted?: boolean } = {}): VersionChange {
    const { key, revision, createRevision } = record;
    const versions = this.of(resourceOf(key));
    const existing = versions.get(key);
    const current = value === undefined ? undefined : new StoredVersion(key, value, createRevision, revision);
    // A deletion is recorded only if the key exists. If the key is unknown here, its values were removed by a compaction.
    const previous =
      existing ?? (current === undefined ? new StoredVersion(key, NOTHING, createRevision, revision) : undefined);
    const change = new VersionChange(revision, key, current, previous);
    versions.apply(change, options);
    if (options.isCompacted === true) return change;
    this.#historyBytes += costOf(change);
    if (previous !== undefined) this.#compression.add(previous);
    return change;
  }

  /** Drops the changes up to `revision` and returns them. The changes of one key are in order. */
  dropThrough(revision: number): readonly VersionChange[] {
    const dropped = [...this.#resources.values()].flatMap((versions) => versions.dropThrough(revision));
    for (const change of dropped) this.#historyBytes -= costOf(change);
    return dropped;
  }

  /** Returns the versions of the resource of `prefix`, or of all resources below it, sorted so that their keys are in order. */
  #below(prefix: string): ResourceVersions[] {
    const resource = resourceOf(prefix);
    if (resource !== '') {
      const versions = this.#resources.get(resource);
      return versions === undefined ? [] : [versions];
    }
    return [...this.#resources]
      .filter(([name]) => name.startsWith(prefix))
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([, versions]) => versions);
  }
}

const NOTHING = Buffer.alloc(0);

/** Returns the `/<group>/<resource>/` of a key or of a prefix, or an empty text if it is shorter. */
export function resourceOf(key: string): string {
  const end = key.indexOf('/', key.indexOf('/', 1) + 1);
  return end <= 0 ? '' : key.slice(0, end + 1);
}
