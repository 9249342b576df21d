/** Defines the table columns of the coordination group. */
import type { V1beta1LeaseCandidateSpec } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf } from '../../columns/column.ts';

export const leaseColumns: TableColumns = {
  columns: [nameColumn, column('Holder', field('coordination.v1.LeaseSpec', 'holderIdentity')), ageColumn],
  cells: (object) => [nameOf(object), holderOf(object), age(object)],
};

export const leaseCandidateColumns: TableColumns = {
  columns: [
    nameColumn,
    column('LeaseName', field('coordination.v1alpha2.LeaseCandidateSpec', 'leaseName')),
    column('BinaryVersion', ''),
    column('EmulationVersion', ''),
    ageColumn,
  ],
  cells(object) {
    const { leaseName = '', binaryVersion = '', emulationVersion = '' } = (object as Candidate).spec ?? {};
    return [nameOf(object), leaseName, binaryVersion, emulationVersion, age(object)];
  },
};

type Candidate = Kind<{ spec: V1beta1LeaseCandidateSpec }>;

function holderOf(object: KubeObject): string {
  const spec = object['spec'] as { holderIdentity?: string } | undefined;
  return spec?.holderIdentity ?? '';
}
