/**
 * What a list or a watch selects, in the form that the watch cache needs: a predicate, a text that is equal for equal
 * selections (watches of one text share their events), and the requirements that an index can answer.
 */
import { stringifyJson } from '../../api/codec/json.ts';
import type { FieldSelector } from '../../api/meta/field-selector.ts';
import { nothing, type Selector } from '../../api/meta/selector.ts';
import type { CacheEntry } from './cache-entry.ts';

/** A requirement that an attribute has one of these values. */
export interface IndexableRequirement {
  readonly kind: 'label' | 'field';
  readonly key: string;
  readonly values: readonly string[];
}

/** A selectable field of an entry; `''` where it has none. */
export type EntryField = (entry: CacheEntry, field: string) => string;

export interface Selection {
  /** `''`: all namespaces. */
  readonly namespace: string;
  /** `''`: all names; else exactly one object. */
  readonly name: string;
  /** Equal for equal selections. */
  readonly text: string;
  /** There are no selectors (namespace and name may stand). */
  readonly everything: boolean;
  readonly indexable: readonly IndexableRequirement[];
  /** Labels and fields only, not namespace and name. */
  matches(entry: CacheEntry, field: EntryField): boolean;
}

export interface SelectionOptions {
  /** One object, by the request's path. */
  readonly name?: string;
  readonly labels?: Selector;
  readonly fields?: FieldSelector;
}

/** `metadata.name=x` of the field selector becomes `name`, `metadata.namespace=x` the namespace where the path has none. */
export function selectionOf(namespace: string, options: SelectionOptions = {}): Selection {
  const labels = options.labels?.isEmpty === false ? options.labels : undefined;
  const fields = options.fields?.isEmpty === false ? options.fields : undefined;
  const name = options.name ?? '';
  const labelText = labels === nothing ? 'nothing' : (labels?.toString() ?? '');
  return {
    namespace: namespace === '' ? (fields?.exactValue('metadata.namespace') ?? '') : namespace,
    name: name === '' ? (fields?.exactValue('metadata.name') ?? '') : name,
    text: stringifyJson([namespace, name, labelText, fields?.toString() ?? '']),
    everything: labels === undefined && fields === undefined,
    indexable: indexable(labels, fields),
    matches: (entry, field) =>
      (labels === undefined || labels.matches(entry.labels)) &&
      (fields === undefined || fields.matches((path) => field(entry, path))),
  };
}

function indexable(labels: Selector | undefined, fields: FieldSelector | undefined): IndexableRequirement[] {
  const requirements: IndexableRequirement[] = [];
  for (const { field, operator, value } of fields?.requirements ?? []) {
    if (operator === '=' && !field.startsWith('metadata.'))
      requirements.push({ kind: 'field', key: field, values: [value] });
  }
  for (const { key, operator, values } of labels?.requirements ?? []) {
    if (operator === '=' || operator === '==' || operator === 'in') requirements.push({ kind: 'label', key, values });
  }
  return requirements;
}
