/** Defines the table columns of dynamic resource allocation. */
import type { DeviceTaintRule, ResourceClaim, ResourceSlice } from './device-types.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf, since } from '../../columns/column.ts';

/** Device classes and claim templates show only their name and age. */
export const nameAndAgeColumns: TableColumns = {
  columns: [nameColumn, ageColumn],
  cells: (object) => [nameOf(object), age(object)],
};

function stateOf({ metadata, status }: ResourceClaim): string {
  const deleted = metadata.deletionTimestamp !== undefined;
  const states = deleted ? ['deleted'] : [];
  if (status?.allocation === undefined) {
    if (!deleted) states.push('pending');
  } else {
    states.push('allocated');
    if ((status.reservedFor ?? []).length > 0) states.push('reserved');
  }
  return states.join(',');
}

export const resourceClaimColumns: TableColumns = {
  columns: [
    nameColumn,
    column('State', 'A summary of the current state (allocated, pending, reserved, etc.).'),
    ageColumn,
  ],
  cells: (object) => [nameOf(object), stateOf(object as ResourceClaim), age(object)],
};

export const resourceSliceColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Node', field('resource.v1.ResourceSliceSpec', 'nodeName')),
    column('Driver', field('resource.v1.ResourceSliceSpec', 'driver')),
    column('Pool', field('resource.v1.ResourcePool', 'name')),
    ageColumn,
  ],
  cells(object) {
    const { spec } = object as ResourceSlice;
    return [nameOf(object), spec?.nodeName ?? '', spec?.driver ?? '', spec?.pool?.name ?? '', age(object)];
  },
};

const TAINT = 'resource.v1.DeviceTaint';

export const deviceTaintRuleColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Key', field(TAINT, 'key')),
    column('Value', field(TAINT, 'value')),
    column('Effect', field(TAINT, 'effect')),
    column('TimeAdded', field(TAINT, 'timeAdded')),
    ageColumn,
  ],
  cells(object) {
    const { key = '', value = '', effect = '', timeAdded } = (object as DeviceTaintRule).spec?.taint ?? {};
    const added = timeAdded === undefined ? '' : since(String(timeAdded));
    return [nameOf(object), key, value, effect, added, age(object)];
  },
};
