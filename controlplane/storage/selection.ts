/**
 * Describes what a list or a watch selects, in the form that the watch cache needs: a predicate, a text that is the same for
 * equal selections (watches with the same text share their events), and the requirements that an index can answer.
 */
import { stringifyJson } from '../../api/codec/json.ts';
import type { FieldSelector } from '../../api/meta/field-selector.ts';
import { nothing, type Selector } from '../../api/meta/selector.ts';
import type { CacheEntry } from './cache-entry.ts';

/** Requires that an attribute has one of these values. */
export interface IndexableRequirement {
  readonly kind: 'label' | 'field';
  readonly key: string;
  readonly values: readonly string[];
}

/** Returns a selectable field of an entry. It is empty if the entry does not have the field. */
type EntryField = (entry: CacheEntry, field: string) => string;

/** A parsed selection. It is immutable and may be shared. */
export interface Selection {
  /** The namespace, or an empty text for all namespaces. */
  readonly namespace: string;
  /** The name of one object, or an empty text for all names. */
  readonly name: string;
  /** Equal selections have the same text. */
  readonly text: string;
  /** Whether there are no selectors. Namespace and name may be set. */
  readonly everything: boolean;
  readonly indexable: readonly IndexableRequirement[];
  /** Matches labels and fields, and not namespace and name. */
  matches(entry: CacheEntry, field: EntryField): boolean;
}

interface SelectionOptions {
  /** The name in the path of the request. */
  readonly name?: string;
  readonly labels?: Selector;
  readonly fields?: FieldSelector;
}

/**
 * Returns the selection of a list or a watch. If the path has no name, `metadata.name=x` of the field selector becomes the
 * name, and `metadata.namespace=x` likewise becomes the namespace.
 */
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
