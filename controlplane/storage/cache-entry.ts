/** Defines an object of the watch cache as its readers see it, and the resource of a cache. */
import type { KubeObject } from '../../api/meta/object.ts';
import type { Entry } from '../model/rest.ts';

/** An object of the cache. Each revision has one shared instance, which keeps its other encodings. */
export interface CacheEntry extends Entry {
  readonly key: string;
  /** Empty for cluster-scoped objects. */
  readonly namespace: string;
  readonly name: string;
  /** The revision as a number. `bytes` and `object` contain it as text. */
  readonly revision: number;
  readonly createRevision: number;
  /** The labels are read without parsing the object. Equal label sets share one map. */
  readonly labels: Readonly<Record<string, string>>;
  /** The object is parsed on first use, and kept as long as it is referenced. */
  readonly object: KubeObject;
}

/** What a watch cache knows about its resource. */
export interface CachedResource {
  /** The first two segments of keys: the group (`core` for the core group) and the plural. */
  readonly group: string;
  readonly resource: string;
  readonly namespaced: boolean;
  /** Returns the selectable fields besides `metadata.name` and `metadata.namespace`, as text. */
  readonly fields?: (object: KubeObject) => Readonly<Record<string, string>>;
  /** The fields of `fields` that have an index (`spec.nodeName`). Small caches are scanned and need no index. */
  readonly indexedFields?: readonly string[];
}

/** The objects that a watch shows before its events. */
export interface ExistingObjects {
  readonly entries: readonly CacheEntry[];
  readonly revision: number;
}
