/** Computes the Table columns of a custom resource: its name, and the columns that its definition selects by JSONPath. */
import { stringifyJson } from '../../api/codec/json.ts';
import type { JsonValue, KubeObject } from '../../api/meta/object.ts';
import { column, CREATED_TEXT, nameColumn, nameOf } from '../registry/columns/column.ts';
import type { Cell, TableColumn, TableColumns } from '../registry/strategy.ts';
import type { PrinterColumn } from './definition.ts';
import { findAll, type JsonPath, parseJsonPath } from './json-path.ts';

const AGE: PrinterColumn = { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' };

export function printerColumns(columns: readonly PrinterColumn[] | undefined): TableColumns {
  const own = columns === undefined || columns.length === 0 ? [AGE] : columns;
  const paths = own.map(({ jsonPath }) => parseJsonPath(jsonPath));
  return {
    columns: [nameColumn, ...own.map((one) => definition(one))],
    cells: (object) => [nameOf(object), ...own.map(({ type }, index) => cell(object, type, paths[index]))],
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
  if (value === undefined || value === null) return null;
  if (type === 'string') return textOf(value);
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

function textOf(value: JsonValue): string {
  return typeof value === 'object' ? stringifyJson(value) : String(value);
}
