/** Defines the Table of every `scale` subresource. */
import type { KubeObject } from '../../../api/meta/object.ts';
import type { TableColumns } from '../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf, NAME_TEXT } from './column.ts';

function replicasOf(part: unknown): number {
  const replicas = typeof part === 'object' && part !== null && 'replicas' in part ? part.replicas : 0;
  return typeof replicas === 'number' ? replicas : 0;
}

/** The columns of the `scale` subresource of custom resources. The cell of absent or zero desired replicas is null. */
export const customScaleColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Desired', 'Number of desired replicas', { type: 'integer' }),
    column('Available', 'Number of actual replicas', { type: 'integer' }),
    { ...ageColumn, type: 'date' },
  ],
  cells: (object: KubeObject) => [
    nameOf(object),
    replicasOf(object['spec']) || null,
    replicasOf(object['status']),
    age(object),
  ],
};

/** The columns of the `scale` subresource of built-in workloads, which are the same for all of them. */
export const scaleColumns: TableColumns = {
  columns: [
    column('Name', NAME_TEXT),
    column('Desired', field('autoscaling.v1.ScaleSpec', 'replicas'), { type: 'integer' }),
    column('Available', field('autoscaling.v1.ScaleStatus', 'replicas'), { type: 'integer' }),
    ageColumn,
  ],
  cells: (object: KubeObject) => [
    nameOf(object),
    replicasOf(object['spec']),
    replicasOf(object['status']),
    age(object),
  ],
};
