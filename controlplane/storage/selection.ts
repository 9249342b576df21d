/**
 * What a list or a watch selects, in the form that the watch cache needs: a predicate, a text that is equal for equal
 * selections (watches of one text share their events), and the requirements that an index can answer.
 */
import type { FieldSelector } from '../../api/meta/field-selector.ts';
import type { Selector } from '../../api/meta/selector.ts';
import type { CacheEntry } from './watch-cache.ts';

/** A requirement that an attribute has one of these values. */
export interface IndexableRequirement {
  readonly kind: 'label' | 'field';
  readonly key: string;
  readonly values: readonly string[];
}

export interface Selection {
  /** `''`: all namespaces. */
  readonly namespace: string;
  /** `''`: all names; else exactly one object. */
  readonly name: string;
  /** Equal for equal selections. */
  readonly text: string;
  /** Neither labels nor fields select (namespace and name may). */
  readonly everything: boolean;
  readonly indexable: readonly IndexableRequirement[];
  /** Labels and fields only. `fields` of the entry are computed when asked for. */
  matches(entry: CacheEntry, fieldsOf: (entry: CacheEntry) => Readonly<Record<string, string>>): boolean;
}

/** Selectors of a request. `metadata.name=x` of the field selector becomes `name`, `metadata.namespace=x` the namespace. */
export declare function selectionOf(
  namespace: string,
  options: { readonly name?: string; readonly labels?: Selector; readonly fields?: FieldSelector },
): Selection;
