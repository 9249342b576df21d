/** Computes the Table columns of a custom resource: its name, and the columns that its definition selects by JSONPath. */
import { canonicalJson } from '../../../api/codec/structured-merge/path-element.ts';
import { goNumber } from '../../../api/meta/go-number.ts';
import type { JsonValue, KubeObject } from '../../../api/meta/object.ts';
import { column, CREATED_TEXT, nameColumn, nameOf } from '../columns/column.ts';
import type { Cell, TableColumn, TableColumns } from '../strategy.ts';
import type { PrinterColumn } from '../kinds/apiextensions/definition.ts';
import { findAll, type JsonPath, parseJsonPath } from '../schemas/json-path.ts';

const AGE: PrinterColumn = { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' };

/** Returns the columns of a table of custom resources. A definition without columns gets the age. */
export function printerColumns(columns: readonly PrinterColumn[] | undefined): TableColumns {
  const printed = columns === undefined || columns.length === 0 ? [AGE] : columns;
  const paths = printed.map(({ jsonPath }) => parseJsonPath(jsonPath));
  return {
    columns: [nameColumn, ...printed.map((one) => definition(one))],
    cells: (object) => [nameOf(object), ...printed.map(({ type }, index) => cell(object, type, paths[index]))],
  };
}

function definition(printed: PrinterColumn): TableColumn {
  const { name, type, format = '', description = '', priority = 0, jsonPath } = printed;
  const text =
    printed === AGE
      ? CREATED_TEXT
      : description === ''
        ? `Custom resource definition column (in JSONPath format): ${jsonPath}`
        : description;
  const base = column(name, text, { format });
  return { ...base, type: type as TableColumn['type'], priority };
}

function cell(object: KubeObject, type: string, path: JsonPath | undefined): Cell {
  if (path === undefined) return null;
  const value = findAll(object as unknown as JsonValue, path)[0];
  if (value === undefined) return null;
  if (type === 'string') return textOf(value);
  if (value === null) return null;
  if (type === 'integer')
    return typeof value === 'number' ? Math.trunc(value) : typeof value === 'bigint' ? value : null;
  if (type === 'number') return typeof value === 'number' || typeof value === 'bigint' ? Number(value) : null;
  if (type === 'boolean') return typeof value === 'boolean' ? value : null;
  if (type !== 'date' || typeof value !== 'string') return null;
  if (value === '' || value === 'null') return '<unknown>';
  const sinceMs = TIME.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(sinceMs) ? '<invalid>' : { sinceMs };
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)$/;

/** Returns the text that Go's JSONPath printer writes: JSON with sorted members for maps and lists, and `%v` for the rest. */
function textOf(value: JsonValue): string {
  if (value === null) return '<no value>';
  if (typeof value === 'number') return Number.isSafeInteger(value) ? String(value) : goNumber(value);
  if (typeof value !== 'object') return String(value);
  return canonicalJson(value).replaceAll(/[<>&\u2028\u2029]/g, escaped);
}

/** Escapes a character as Go's JSON encoder does, so that the text can stand in HTML. */
const escaped = (char: string): string => `\\u${(char.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`;
