/** Lists the kinds of the group `apps`, controller revisions among them, and the replication controllers of the core group. */
import { type FieldError, invalid, required } from '../../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { revisionColumns } from './columns.ts';
import { kindRow, type Strategy } from '../../strategy.ts';
import { daemonSets } from './daemon-sets.ts';
import { deployments } from './deployments.ts';
import { IMMUTABLE, nonNegative } from '../field-rules.ts';
import { replicaSets, replicationControllers } from './replica-sets.ts';
import { statefulSets } from './stateful-sets.ts';

type ControllerRevision = KubeObject & { data?: unknown; revision?: number };

function dataErrors(data: unknown): FieldError[] {
  if (data === undefined || data === null) return [required('data', 'data is mandatory')];
  return typeof data === 'object' && !Array.isArray(data) ? [] : [required('data', 'data must be a valid JSON object')];
}

const controllerRevisions: Strategy<ControllerRevision> = {
  validateCreate: (object) => [...nonNegative('revision', object.revision), ...dataErrors(object.data)],
  validateUpdate: (object, old) => [
    ...nonNegative('revision', object.revision),
    // kube-apiserver compares the data as raw bytes, so an empty object in it differs from an absent one.
    ...(jsonEqual(object.data, old.data) ? [] : [invalid('data', object.data, IMMUTABLE)]),
  ],
  columns: revisionColumns,
};

export const appsKinds = [
  kindRow('apps', 'deployments', deployments),
  kindRow('apps', 'replicasets', replicaSets),
  kindRow('apps', 'statefulsets', statefulSets),
  kindRow('apps', 'daemonsets', daemonSets),
  kindRow('apps', 'controllerrevisions', controllerRevisions),
  kindRow('', 'replicationcontrollers', replicationControllers),
];
