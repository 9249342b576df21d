/** Defines the table columns of workloads. */
import type { V1LabelSelector } from '@kubernetes/client-node';
import type { PodTemplate } from '../../../../api/kinds/pod-types.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { formatLabelSelector } from '../../../../api/meta/selector.ts';
import type { TableColumn, TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, formatLabels, nameColumn, nameOf, orNone } from '../../columns/column.ts';
import { containerCells } from '../core/columns.ts';

interface Workload extends KubeObject {
  spec?: { replicas?: number; selector?: V1LabelSelector; template?: PodTemplate };
  status?: Record<string, number | undefined>;
}

const count = { type: 'integer' } as const;
const wide = (template: string, selector: string): TableColumn[] => [
  column('Containers', 'Names of each container in the template.', { wide: true }),
  column('Images', 'Images referenced by each container in the template.', { wide: true }),
  column('Selector', field(template, selector), { wide: true }),
];

const wideCells = ({ spec }: Workload): string[] => [
  ...containerCells(spec?.template),
  formatLabelSelector(spec?.selector),
];

export const deploymentColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Ready', 'Number of the pod with ready state'),
    column('Up-to-date', field('apps.v1.DeploymentStatus', 'updatedReplicas')),
    column('Available', field('apps.v1.DeploymentStatus', 'availableReplicas')),
    ageColumn,
    ...wide('apps.v1.DeploymentSpec', 'selector'),
  ],
  cells(object) {
    const one = object as Workload;
    const { status } = one;
    return [
      nameOf(object),
      `${status?.['readyReplicas'] ?? 0}/${one.spec?.replicas ?? 0}`,
      status?.['updatedReplicas'] ?? 0,
      status?.['availableReplicas'] ?? 0,
      age(object),
      ...wideCells(one),
    ];
  },
};

export const replicaSetColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Desired', field('apps.v1.ReplicaSetSpec', 'replicas'), count),
    column('Current', field('apps.v1.ReplicaSetStatus', 'replicas'), count),
    column('Ready', field('apps.v1.ReplicaSetStatus', 'readyReplicas'), count),
    ageColumn,
    ...wide('apps.v1.ReplicaSetSpec', 'selector'),
  ],
  cells(object) {
    const one = object as Workload;
    return [
      nameOf(object),
      one.spec?.replicas ?? 0,
      one.status?.['replicas'] ?? 0,
      one.status?.['readyReplicas'] ?? 0,
      age(object),
      ...wideCells(one),
    ];
  },
};

export const statefulSetColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Ready', 'Number of the pod with ready state'),
    ageColumn,
    column('Containers', 'Names of each container in the template.', { wide: true }),
    column('Images', 'Images referenced by each container in the template.', { wide: true }),
  ],
  cells(object) {
    const one = object as Workload;
    return [
      nameOf(object),
      `${one.status?.['readyReplicas'] ?? 0}/${one.spec?.replicas ?? 0}`,
      age(object),
      ...containerCells(one.spec?.template),
    ];
  },
};

export const daemonSetColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Desired', field('apps.v1.DaemonSetStatus', 'desiredNumberScheduled'), count),
    column('Current', field('apps.v1.DaemonSetStatus', 'currentNumberScheduled'), count),
    column('Ready', field('apps.v1.DaemonSetStatus', 'numberReady'), count),
    column('Up-to-date', field('apps.v1.DaemonSetStatus', 'updatedNumberScheduled'), count),
    column('Available', field('apps.v1.DaemonSetStatus', 'numberAvailable'), count),
    column('Node Selector', field('core.v1.PodSpec', 'nodeSelector')),
    ageColumn,
    ...wide('apps.v1.DaemonSetSpec', 'selector'),
  ],
  cells(object) {
    const one = object as Workload;
    const status = one.status ?? {};
    return [
      nameOf(object),
      status['desiredNumberScheduled'] ?? 0,
      status['currentNumberScheduled'] ?? 0,
      status['numberReady'] ?? 0,
      status['updatedNumberScheduled'] ?? 0,
      status['numberAvailable'] ?? 0,
      formatLabels(one.spec?.template?.spec?.nodeSelector as Record<string, string> | undefined),
      age(object),
      ...wideCells(one),
    ];
  },
};

export const replicationControllerColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Desired', field('core.v1.ReplicationControllerSpec', 'replicas'), count),
    column('Current', field('core.v1.ReplicationControllerStatus', 'replicas'), count),
    column('Ready', field('core.v1.ReplicationControllerStatus', 'readyReplicas'), count),
    ageColumn,
    ...wide('core.v1.ReplicationControllerSpec', 'selector'),
  ],
  cells(object) {
    const one = object as Workload;
    const selector = formatLabels(one.spec?.selector as Record<string, string> | undefined);
    return [
      nameOf(object),
      one.spec?.replicas ?? 0,
      one.status?.['replicas'] ?? 0,
      one.status?.['readyReplicas'] ?? 0,
      age(object),
      ...containerCells(one.spec?.template),
      selector,
    ];
  },
};

export const revisionColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Controller', 'Controller of the object'),
    column('Revision', field('apps.v1.ControllerRevision', 'revision')),
    ageColumn,
  ],
  cells(object) {
    const owner = object.metadata.ownerReferences?.find(({ controller }) => controller === true);
    const group = owner?.apiVersion.includes('/') === true ? `.${owner.apiVersion.split('/')[0] ?? ''}` : '';
    return [
      nameOf(object),
      orNone(owner === undefined ? '' : `${owner.kind.toLowerCase()}${group}/${owner.name}`),
      (object as { revision?: number }).revision ?? 0,
      age(object),
    ];
  },
};
