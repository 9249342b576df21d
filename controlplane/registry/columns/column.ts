/** Builds what the columns of many kinds share: definitions, ages, and lists in one cell. */
import type { KubeObject } from '../../../api/meta/object.ts';
import type { Cell, TableColumn } from '../strategy.ts';
import { FIELD_TEXTS } from './field-texts.ts';

interface Options {
  readonly type?: TableColumn['type'];
  readonly format?: string;
  /** Whether the column is shown only with `-o wide`. */
  readonly wide?: boolean;
}

/** Declares a column of type `string` by default; `wide` ones are shown by `kubectl get -o wide` alone. */
export function column(name: string, description: TableColumn['description'], options: Options = {}): TableColumn {
  return {
    name,
    type: options.type ?? 'string',
    format: options.format ?? '',
    description,
    priority: options.wide === true ? 1 : 0,
  };
}

/**
 * Describes a column by the documentation of a field. `struct` is the type without `io.k8s.api`, such as
 * `scheduling.v1.PriorityClass`.
 */
export function field(struct: string, name: string): TableColumn['description'] {
  return FIELD_TEXTS.get(`${struct}.${name}`) ?? { struct: `io.k8s.api.${struct}`, field: name };
}

const META = 'io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta';
/** The description of columns of ages: the documentation of `metadata.creationTimestamp`. */
export const CREATED_TEXT: TableColumn['description'] = { struct: META, field: 'creationTimestamp' };
/** The description of columns of names: the documentation of `metadata.name`. */
export const NAME_TEXT: TableColumn['description'] = { struct: META, field: 'name' };

/** The first column of nearly every kind. */
export const nameColumn: TableColumn = column('Name', NAME_TEXT, { format: 'name' });
/** The last column of nearly every kind without `-o wide`. */
export const ageColumn: TableColumn = column('Age', CREATED_TEXT);

/** Returns the cell of a time in RFC 3339: its age when a Table is requested, or `<unknown>` if it is absent or empty. */
export function since(time: string | null | undefined): Cell {
  return time === undefined || time === null || time === '' ? '<unknown>' : { sinceMs: Date.parse(time) };
}

/** Returns the cell of `ageColumn`. */
export const age = (object: KubeObject): Cell => since(object.metadata.creationTimestamp);

/** Returns the cell of `nameColumn`. */
export const nameOf = (object: KubeObject): string => object.metadata.name ?? '';

/** Returns `<none>` for an empty text. */
export function orNone(text: string | undefined): string {
  return text === undefined || text === '' ? '<none>' : text;
}

/** Formats labels as `a=b,c=d` in the order of the keys, and no labels as `<none>`. */
export function formatLabels(labels: Readonly<Record<string, string>> | undefined): string {
  const pairs = Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`);
  return pairs.length === 0 ? '<none>' : pairs.sort().join(',');
}
