/** Creates the role of the provisioner of local volumes, which itself creates their storage class. */
import type { Client } from '../../../api/client/client.ts';
import { clusterRoleBindings, clusterRoles, RBAC_GROUP } from '../../../api/client/resources.ts';
import { createIfMissing } from './existing-objects.ts';
import { SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

/** The account of the controller, as in its table. */
const ACCOUNT = 'local-volume-provisioner';
const ROLE = 'orchlet:local-volume-provisioner';

const RULES: readonly (readonly [group: string, resources: readonly string[], verbs: readonly string[]])[] = [
  ['', ['persistentvolumes'], ['get', 'list', 'watch', 'create', 'patch', 'delete']],
  ['', ['persistentvolumeclaims'], ['get', 'list', 'watch', 'patch']],
  ['', ['persistentvolumeclaims/status'], ['patch']],
  ['', ['nodes'], ['get', 'list', 'watch']],
  ['', ['events'], ['create', 'patch', 'update']],
  ['storage.k8s.io', ['storageclasses'], ['get', 'list', 'watch', 'create']],
];

/** Creates the role and its binding if they are missing; what an administrator changed stays. */
export async function ensureLocalStorageRights(client: Client): Promise<void> {
  await createIfMissing(client, clusterRoles, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'ClusterRole',
    metadata: { name: ROLE },
    rules: RULES.map(([group, resources, verbs]) => ({ apiGroups: [group], resources, verbs })),
  });
  await createIfMissing(client, clusterRoleBindings, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'ClusterRoleBinding',
    metadata: { name: ROLE },
    roleRef: { apiGroup: RBAC_GROUP, kind: 'ClusterRole', name: ROLE },
    subjects: [{ kind: 'ServiceAccount', name: ACCOUNT, namespace: SYSTEM_NAMESPACE }],
  });
}
