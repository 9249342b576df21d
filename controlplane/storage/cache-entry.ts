/** An object of the watch cache as its readers see it, and the resource of a cache. */
import type { KubeObject } from '../../api/meta/object.ts';
import type { Entry } from '../model/rest.ts';

/** An object of the cache. One instance per revision, shared by everyone, so a WeakMap on it caches other encodings. */
export interface CacheEntry extends Entry {
  readonly key: string;
  /** `''` for cluster scope. */
  readonly namespace: string;
  readonly name: string;
  /** As a number; `bytes` and `object` hold it as text. */
  readonly revision: number;
  readonly createRevision: number;
  /** Read without parsing the object; equal label sets are one map. */
  readonly labels: Readonly<Record<string, string>>;
  /** Parsed on first use, kept as long as somebody holds it. */
  readonly object: KubeObject;
}

export interface CachedResource {
  /** `core` or the group, and the plural: the first two segments of keys. */
  readonly group: string;
  readonly resource: string;
  readonly namespaced: boolean;
  /** Selectable fields beyond `metadata.name` and `metadata.namespace`, as their text. */
  readonly fields?: (object: KubeObject) => Readonly<Record<string, string>>;
  /** Of `fields`, those that an index is worth (`spec.nodeName`). Built on first use. */
  readonly indexedFields?: readonly string[];
}
