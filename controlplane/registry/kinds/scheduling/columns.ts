/** Defines the table columns of priority classes. */
import type { V1PriorityClass } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf } from '../../columns/column.ts';

const integer = { type: 'integer' } as const;

export const priorityClassColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Value', field('scheduling.v1.PriorityClass', 'value'), integer),
    column('Global-Default', field('scheduling.v1.PriorityClass', 'globalDefault'), { type: 'boolean' }),
    ageColumn,
    column('PreemptionPolicy', field('scheduling.v1.PriorityClass', 'preemptionPolicy')),
  ],
  cells(object) {
    const { value, globalDefault, preemptionPolicy } = object as Kind<
      Pick<V1PriorityClass, 'value' | 'globalDefault' | 'preemptionPolicy'>
    >;
    return [nameOf(object), value ?? 0, globalDefault === true, age(object), preemptionPolicy ?? '<unset>'];
  },
};
