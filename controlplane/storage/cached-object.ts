/**
 * Represents an object in the watch cache: the stored bytes, the labels, and a weak reference to the parsed object. It is
 * small, because there are many.
 */
import type { KubeObject } from '../../api/meta/object.ts';
import { labelsText, parseObject, stampRevision } from './object-bytes.ts';
import type { StoredValue } from './resource-versions.ts';
import type { CachedResource, CacheEntry } from './cache-entry.ts';

/** The labels of an object, by key. */
type Labels = Readonly<Record<string, string>>;

const NO_LABELS: Labels = Object.freeze({});
/** The number of distinct label sets that are shared. */
const LABEL_SETS_KEPT = 20_000;

/** Shares one map between equal label sets, such as those of the pods of a replica set. */
export class LabelSets {
  readonly #byText = new Map<string, Labels>();

  /** Returns the labels of a stored object, one frozen value for all objects with the same text of labels. */
  of(bytes: Buffer): Labels {
    const text = labelsText(bytes);
    if (text === undefined) return NO_LABELS;
    let labels = this.#byText.get(text);
    if (labels !== undefined) return labels;
    labels = Object.freeze(JSON.parse(text) as Record<string, string>);
    if (this.#byText.size >= LABEL_SETS_KEPT) this.#byText.clear();
    this.#byText.set(text, labels);
    return labels;
  }
}

/** The data that the objects of one cache share. */
export interface ObjectContext {
  readonly resource: CachedResource;
  readonly prefixLength: number;
  readonly labelSets: LabelSets;
  readonly freeze: boolean;
  /** The cache is closed. Another cache of the resource may replace its objects. */
  isClosed: boolean;
}

interface Parsed {
  readonly object: KubeObject;
  fields: Readonly<Record<string, string>> | undefined;
}

/** An entry whose object is parsed when it is read and may be garbage-collected afterwards. */
export class CachedObject implements CacheEntry {
  readonly #context: ObjectContext;
  readonly stored: StoredValue;
  encodings: object | undefined = undefined;
  #labels: Labels | undefined;
  #parsed: WeakRef<Parsed & WeakKey> | undefined;
  #deleted: CachedObject | undefined;

  constructor(context: ObjectContext, stored: StoredValue) {
    this.#context = context;
    this.stored = stored;
  }

  /** Whether the object belongs to that cache. */
  isOf(context: ObjectContext): boolean {
    return this.#context === context;
  }

  get isAbandoned(): boolean {
    return this.#context.isClosed;
  }

  get key(): string {
    return this.stored.key;
  }

  get bytes(): Buffer {
    return this.stored.value;
  }

  get revision(): number {
    return this.stored.revision;
  }

  get createRevision(): number {
    return this.stored.createRevision;
  }

  get namespace(): string {
    if (!this.#context.resource.namespaced) return '';
    return this.key.slice(this.#context.prefixLength, this.key.lastIndexOf('/'));
  }

  get name(): string {
    return this.key.slice(this.key.lastIndexOf('/') + 1);
  }

  get labels(): Labels {
    this.#labels ??= this.#context.labelSets.of(this.bytes);
    return this.#labels;
  }

  get object(): KubeObject {
    return this.#parse().object;
  }

  field(path: string): string {
    if (path === 'metadata.name') return this.name;
    if (path === 'metadata.namespace') return this.namespace;
    const parsed = this.#parse();
    parsed.fields ??= this.#context.resource.fields?.(parsed.object) ?? {};
    return parsed.fields[path] ?? '';
  }

  /** Returns the object with another revision, as a deletion shows it. The last result is kept. */
  at(revision: number): CachedObject {
    if (this.#deleted?.revision === revision) return this.#deleted;
    const { key, createRevision } = this.stored;
    this.#deleted = new CachedObject(this.#context, {
      key,
      createRevision,
      revision,
      value: stampRevision(this.bytes, revision),
    });
    return this.#deleted;
  }

  #parse(): Parsed {
    const cached = this.#parsed?.deref();
    if (cached !== undefined) return cached;
    const object = parseObject(this.bytes);
    if (this.#context.freeze) deepFreeze(object);
    const parsed: Parsed = { object, fields: undefined };
    this.#parsed = new WeakRef(parsed);
    return parsed;
  }
}

function deepFreeze(value: unknown): void {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return;
  Object.freeze(value);
  for (const member of Object.values(value)) deepFreeze(member);
}
