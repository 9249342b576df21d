/**
 * Agents that program service addresses, enforce network policies and serve cluster names need two things: the right to read
 * endpoints and policies, and the service `kube-dns`, whose address belongs to the name server that runs on
 * each node. Called once at the start. Changes of an administrator stay.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/machinery/client.ts';
import { clusterRoleBindings, clusterRoles, services } from '../../api/machinery/resources.ts';
import { isInvalid, isNotFound, tolerate } from '../../api/meta/status-error.ts';
import { createIfMissing, findObject } from './existing-objects.ts';
import { POLICY_PEERS_ROLE } from './policy-rights.ts';
import { serviceAddress } from './service-addresses.ts';

const NAMESPACE = 'kube-system';
const NAME = 'kube-dns';
/** `policy-rights.ts` adds the right to read the peers once there is a policy. */
const POLICY_ROLE = 'orchlet:network-policy';
/** By convention, the DNS service has the tenth address of the range. */
const DNS_ADDRESS = 10;

export async function ensureNodeServices(
  client: Client,
  options: {
    readonly serviceClusterCidrs: readonly string[];
    /** The nodes serve the names of the cluster. */
    readonly servesNames: boolean;
    /** The nodes enforce network policies. Without the right to read policies they remove their rules. */
    readonly enforcesPolicies: boolean;
    readonly logger: Logger;
  },
): Promise<void> {
  const { serviceClusterCidrs, servesNames, enforcesPolicies, logger } = options;
  await createIfMissing(client, clusterRoleBindings, {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRoleBinding',
    metadata: { name: 'orchlet:node-proxier' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'system:node-proxier' },
    subjects: [{ kind: 'Group', apiGroup: 'rbac.authorization.k8s.io', name: 'system:nodes' }],
  });
  if (enforcesPolicies) await letNodesReadPolicies(client);
  else
    for (const name of [POLICY_ROLE, POLICY_PEERS_ROLE])
      await tolerate(client.delete(clusterRoleBindings, '', name), isNotFound);
  if (servesNames) await ensureDns(client, serviceClusterCidrs, logger);
}

async function letNodesReadPolicies(client: Client): Promise<void> {
  await createIfMissing(client, clusterRoles, {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRole',
    metadata: { name: POLICY_ROLE },
    rules: [{ apiGroups: ['networking.k8s.io'], resources: ['networkpolicies'], verbs: ['get', 'list', 'watch'] }],
  });
  await createIfMissing(client, clusterRoleBindings, {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRoleBinding',
    metadata: { name: POLICY_ROLE },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: POLICY_ROLE },
    subjects: [{ kind: 'Group', apiGroup: 'rbac.authorization.k8s.io', name: 'system:nodes' }],
  });
}

async function ensureDns(client: Client, serviceClusterCidrs: readonly string[], logger: Logger): Promise<void> {
  // A second `kube-dns` service would be refused because of its address, and not because of its name.
  if ((await findObject(client, services, NAMESPACE, NAME)) !== undefined) return;
  const address = serviceAddress(serviceClusterCidrs, DNS_ADDRESS);
  try {
    await createDns(client, address);
  } catch (error) {
    if (!isInvalid(error)) throw error;
    // In an older cluster, another service may have the address.
    logger.warn({ address }, 'Another service has the usual address of kube-dns, so kube-dns gets another one');
    await createDns(client, undefined);
  }
}

async function createDns(client: Client, clusterIP: string | undefined): Promise<void> {
  await createIfMissing(client, services, {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: {
      name: NAME,
      namespace: NAMESPACE,
      labels: { 'k8s-app': 'kube-dns', 'kubernetes.io/cluster-service': 'true', 'kubernetes.io/name': 'KubeDNS' },
      // Agents recognize by it that they program service addresses and serve cluster names.
      annotations: { 'orchlet.local/served-by': 'nodes' },
    },
    spec: {
      ...(clusterIP === undefined ? {} : { clusterIP }),
      ports: [
        { name: 'dns', port: 53, protocol: 'UDP', targetPort: 53 },
        { name: 'dns-tcp', port: 53, protocol: 'TCP', targetPort: 53 },
      ],
    },
  });
}
