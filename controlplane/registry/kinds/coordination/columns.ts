/** Defines the table columns of the coordination group. */
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf } from '../../columns/column.ts';

export const leaseColumns: TableColumns = {
  columns: [nameColumn, column('Holder', field('coordination.v1.LeaseSpec', 'holderIdentity')), ageColumn],
  cells: (object) => [nameOf(object), holderOf(object), age(object)],
};

function holderOf(object: KubeObject): string {
  const spec = object['spec'] as { holderIdentity?: string } | undefined;
  return spec?.holderIdentity ?? '';
}
