/**
 * The storage class of local volumes, and the permissions of its provisioner. Called at each start. Changes of an administrator
 * stay; where another class is the default, this one does not become it.
 */
import type { Client } from '../../api/machinery/client.ts';
import { clusterRoleBindings, clusterRoles, storageClasses } from '../../api/machinery/resources.ts';
import { LOCAL_PROVISIONER } from '../controllers/storage/local-volumes.ts';
import { createIfMissing, objectsByName } from './existing-objects.ts';

/** The account of the controller, as in its table. */
const ACCOUNT = 'local-volume-provisioner';
const ROLE = 'orchlet:local-volume-provisioner';
const CLASS = 'local';
const DEFAULT = 'storageclass.kubernetes.io/is-default-class';

const RULES: readonly (readonly [group: string, resources: readonly string[], verbs: readonly string[]])[] = [
  ['', ['persistentvolumes'], ['get', 'list', 'watch', 'create', 'patch', 'delete']],
  ['', ['persistentvolumeclaims'], ['get', 'list', 'watch', 'patch']],
  ['', ['persistentvolumeclaims/status'], ['patch']],
  ['', ['nodes'], ['get', 'list', 'watch']],
  ['', ['events'], ['create', 'patch', 'update']],
  ['storage.k8s.io', ['storageclasses'], ['get', 'list', 'watch']],
];

export async function ensureLocalStorage(client: Client): Promise<void> {
  const classes = await objectsByName(client, storageClasses);
  if (classes === undefined) return;
  await createIfMissing(client, clusterRoles, {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRole',
    metadata: { name: ROLE },
    rules: RULES.map(([group, resources, verbs]) => ({ apiGroups: [group], resources, verbs })),
  });
  await createIfMissing(client, clusterRoleBindings, {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRoleBinding',
    metadata: { name: ROLE },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: ROLE },
    subjects: [{ kind: 'ServiceAccount', name: ACCOUNT, namespace: 'kube-system' }],
  });
  if (classes.has(CLASS)) return;
  const hasDefault = [...classes.values()].some(({ metadata }) => metadata.annotations?.[DEFAULT] === 'true');
  await createIfMissing(client, storageClasses, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: CLASS, ...(hasDefault ? {} : { annotations: { [DEFAULT]: 'true' } }) },
    provisioner: LOCAL_PROVISIONER,
    reclaimPolicy: 'Delete',
    volumeBindingMode: 'WaitForFirstConsumer',
    allowVolumeExpansion: true,
  });
}
