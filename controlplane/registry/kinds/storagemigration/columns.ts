/** Defines the table columns of storage version migrations. */
import type { V1beta1StorageVersionMigrationSpec, V1beta1StorageVersionMigrationStatus } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import type { TableColumns } from '../../strategy.ts';
import { column, NAME_TEXT, nameOf } from '../../columns/column.ts';

type Migration = Kind<{ spec: V1beta1StorageVersionMigrationSpec; status: V1beta1StorageVersionMigrationStatus }>;

const STATES: ReadonlySet<string> = new Set(['Running', 'Failed', 'Succeeded']);

export const storageMigrationColumns: TableColumns = {
  columns: [
    column('Name', NAME_TEXT),
    column('Resource', 'GroupResource to migrate'),
    column('Status', 'Status of the migration'),
  ],
  cells(object) {
    const { spec, status } = object as Migration;
    const { group = '', resource = '' } = spec?.resource ?? {};
    const state = (status?.conditions ?? []).findLast((one) => one.status === 'True' && STATES.has(one.type ?? ''));
    return [nameOf(object), group === '' ? resource : `${resource}.${group}`, state?.type ?? 'Unknown'];
  },
};
