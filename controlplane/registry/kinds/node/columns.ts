/** Defines the table columns of the node group. */
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, nameColumn, nameOf } from '../../columns/column.ts';

export const runtimeClassColumns: TableColumns = {
  // kube-apiserver has no description of this column.
  columns: [nameColumn, column('Handler', ''), ageColumn],
  cells: (object) => [nameOf(object), (object as { handler?: string }).handler ?? '', age(object)],
};
