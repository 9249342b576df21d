/**
 * What lets new nodes in: bindings by which the bearer of a bootstrap token may ask for a certificate, by which such requests
 * are approved, and by which a node renews its own.
 */
import type { Client } from '../api/machinery/client.ts';
import { clusterRoleBindings } from '../api/machinery/resources.ts';
import { isAlreadyExists } from '../api/meta/status-error.ts';

/** The group of bootstrap tokens for nodes, as other tools name it. */
export const NODE_BOOTSTRAP_GROUP = 'system:bootstrappers:kubeadm:default-node-token';

const BINDINGS = [
  { name: 'orchlet:node-bootstrap', role: 'system:node-bootstrapper', group: NODE_BOOTSTRAP_GROUP },
  {
    name: 'orchlet:node-approve-bootstrap',
    role: 'system:certificates.k8s.io:certificatesigningrequests:nodeclient',
    group: NODE_BOOTSTRAP_GROUP,
  },
  {
    name: 'orchlet:node-approve-renewal',
    role: 'system:certificates.k8s.io:certificatesigningrequests:selfnodeclient',
    group: 'system:nodes',
  },
] as const;

/** Made once: what an administrator changes or deletes while the control plane runs stays so until its next start. */
export async function ensureNodeBootstrap(client: Client): Promise<void> {
  await Promise.all(
    BINDINGS.map(async ({ name, role, group }) => {
      try {
        await client.create(clusterRoleBindings, '', {
          apiVersion: 'rbac.authorization.k8s.io/v1',
          kind: 'ClusterRoleBinding',
          metadata: { name },
          roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: role },
          subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'Group', name: group }],
        });
      } catch (error) {
        if (!isAlreadyExists(error)) throw error;
      }
    }),
  );
}
