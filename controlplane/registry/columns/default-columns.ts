/** Defines the Table of a kind without its own columns: name and time of creation. */
import type { TableColumns } from '../strategy.ts';
import { column, CREATED_TEXT, nameColumn, nameOf } from './column.ts';

/** The time is RFC 3339, as in kube-apiserver, and not an age. */
export const defaultColumns: TableColumns = {
  columns: [nameColumn, column('Created At', CREATED_TEXT, { type: 'date' })],
  cells: (object) => [nameOf(object), object.metadata.creationTimestamp ?? null],
};
