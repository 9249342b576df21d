/**
 * Creates what agents need that program service addresses, enforce network policies and serve cluster names: the right to read
 * endpoints and policies, and the service `kube-dns`, whose address belongs to the name server that runs on each node. An
 * administrator's changes of roles and of the service stay, and so does what other running servers serve.
 */
import type { Logger } from '../../../api/component/logger.ts';
import type { Client } from '../../../api/client/client.ts';
import {
  clusterRoleBindings,
  clusterRoles,
  roleBindings,
  roles,
  services,
  RBAC_GROUP,
} from '../../../api/client/resources.ts';
import { isInvalid, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { createIfMissing, findObject } from './existing-objects.ts';
import { POLICY_PEERS_ROLE } from './policy-rights.ts';
import { serviceAddress } from './service-addresses.ts';
import { NODES_GROUP } from '../../../api/meta/system-users.ts';
import { POD_NETWORK, POD_RANGES, SERVED_BY } from '../../../api/meta/orchlet-annotations.ts';
import { SYSTEM_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

const NAME = 'kube-dns';
/** `policy-rights.ts` adds the right to read the peers once there is a policy. */
const POLICY_ROLE = 'orchlet:network-policy';
const CONFIG_ROLE = 'orchlet:kube-dns-config';
/** The index of the DNS service's address in the service range. By convention, it is the tenth one. */
const DNS_ADDRESS = 10;

/** Which parts the nodes of this cluster run, by the flags of this server. */
export interface NodeServicesOptions {
  readonly serviceClusterCidrs: readonly string[];
  /** Whether the nodes serve the names of the cluster. */
  readonly servesNames: boolean;
  /** Whether the nodes enforce network policies. Without the right to read policies, they remove their rules. */
  readonly enforcesPolicies: boolean;
  /** What agents set up between nodes, and the ranges of all pods. */
  readonly podNetwork: { readonly mode: string; readonly ranges: readonly string[] };
  /** The addresses of the other servers that run on the same storage. */
  readonly otherServers: readonly string[];
  readonly logger: Logger;
}

/**
 * Creates what the nodes need to provide services, names and network policies. Without `enforcesPolicies`, it removes the right
 * to read policies, unless other servers run. Rejects with the first error of the API.
 */
export async function ensureNodeServices(client: Client, options: NodeServicesOptions): Promise<void> {
  const { serviceClusterCidrs, servesNames, enforcesPolicies, logger } = options;
  await createIfMissing(client, clusterRoleBindings, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'ClusterRoleBinding',
    metadata: { name: 'orchlet:node-proxier' },
    roleRef: { apiGroup: RBAC_GROUP, kind: 'ClusterRole', name: 'system:node-proxier' },
    subjects: [{ kind: 'Group', apiGroup: RBAC_GROUP, name: NODES_GROUP }],
  });
  if (enforcesPolicies) await letNodesReadPolicies(client);
  else await endPolicies(client, options);
  if (!servesNames) return;
  await ensureDns(client, serviceClusterCidrs, logger);
  await publishPodNetwork(client, options);
}

async function endPolicies(client: Client, { otherServers, logger }: NodeServicesOptions): Promise<void> {
  for (const name of [POLICY_ROLE, POLICY_PEERS_ROLE])
    if (otherServers.length === 0) await tolerate(client.delete(clusterRoleBindings, '', name), isNotFound);
    else if ((await findObject(client, clusterRoleBindings, '', name)) !== undefined)
      logger.warn(
        { binding: name, others: otherServers },
        'Nodes still enforce network policies, because other control planes run: start all of them with --disable network-policies, and delete this ClusterRoleBinding',
      );
}

async function letNodesReadPolicies(client: Client): Promise<void> {
  await createIfMissing(client, clusterRoles, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'ClusterRole',
    metadata: { name: POLICY_ROLE },
    rules: [{ apiGroups: ['networking.k8s.io'], resources: ['networkpolicies'], verbs: ['get', 'list', 'watch'] }],
  });
  await createIfMissing(client, clusterRoleBindings, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'ClusterRoleBinding',
    metadata: { name: POLICY_ROLE },
    roleRef: { apiGroup: RBAC_GROUP, kind: 'ClusterRole', name: POLICY_ROLE },
    subjects: [{ kind: 'Group', apiGroup: RBAC_GROUP, name: NODES_GROUP }],
  });
}

async function ensureDns(client: Client, serviceClusterCidrs: readonly string[], logger: Logger): Promise<void> {
  await ensureConfigRights(client);
  // A second `kube-dns` service would be refused because of its address, and not because of its name.
  if ((await findObject(client, services, SYSTEM_NAMESPACE, NAME)) !== undefined) return;
  const addresses = serviceClusterCidrs.flatMap((range) => serviceAddress([range], DNS_ADDRESS) ?? []);
  const isDual = serviceClusterCidrs.length > 1;
  try {
    await createDns(client, addresses, isDual);
  } catch (error) {
    if (!isInvalid(error)) throw error;
    // In an older cluster, another service may have the address.
    logger.warn({ addresses }, 'Another service has the usual address of kube-dns, so kube-dns gets another one');
    await createDns(client, [], isDual);
  }
}

/**
 * Writes the pod network into the service `kube-dns`, from which each agent reads it. A published one stays while other servers
 * run: a further server with the default flags must not end the encryption between nodes.
 */
async function publishPodNetwork(
  client: Client,
  { podNetwork: { mode, ranges }, otherServers, logger }: NodeServicesOptions,
): Promise<void> {
  const { metadata } = (await findObject(client, services, SYSTEM_NAMESPACE, NAME)) ?? { metadata: {} };
  const found = new Map(Object.entries(metadata.annotations ?? {}));
  const annotations = { [POD_NETWORK]: mode, [POD_RANGES]: ranges.join(',') };
  // An administrator may have given the name to another service.
  if (found.get(SERVED_BY) !== 'nodes') return;
  if (Object.entries(annotations).every(([key, value]) => found.get(key) === value)) return;
  if (otherServers.length > 0 && found.has(POD_NETWORK)) {
    logger.warn(
      { published: Object.fromEntries(found), flags: annotations, others: otherServers },
      'The pod network stays as it is published, because other control planes run: give all of them the same --pod-network and --cluster-cidr, or annotate the service kube-dns',
    );
    return;
  }
  await client.patch(services, SYSTEM_NAMESPACE, NAME, { type: 'merge', body: { metadata: { annotations } } });
}

/** Lets nodes read the ConfigMap with the name servers of other domains, which an administrator may create. */
async function ensureConfigRights(client: Client): Promise<void> {
  const metadata = { name: CONFIG_ROLE, namespace: SYSTEM_NAMESPACE };
  await createIfMissing(client, roles, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'Role',
    metadata,
    rules: [{ apiGroups: [''], resources: ['configmaps'], resourceNames: [NAME], verbs: ['get', 'list', 'watch'] }],
  });
  await createIfMissing(client, roleBindings, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'RoleBinding',
    metadata,
    roleRef: { apiGroup: RBAC_GROUP, kind: 'Role', name: CONFIG_ROLE },
    subjects: [{ kind: 'Group', apiGroup: RBAC_GROUP, name: NODES_GROUP }],
  });
}

async function createDns(client: Client, clusterIPs: readonly string[], isDual: boolean): Promise<void> {
  await createIfMissing(client, services, {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: {
      name: NAME,
      namespace: SYSTEM_NAMESPACE,
      labels: { 'k8s-app': 'kube-dns', 'kubernetes.io/cluster-service': 'true', 'kubernetes.io/name': 'KubeDNS' },
      // Agents recognize by it that they program service addresses and serve cluster names.
      annotations: { [SERVED_BY]: 'nodes' },
    },
    spec: {
      ...(clusterIPs.length === 0 ? {} : { clusterIP: clusterIPs[0], clusterIPs }),
      ...(isDual ? { ipFamilyPolicy: 'PreferDualStack' } : {}),
      ports: [
        { name: 'dns', port: 53, protocol: 'UDP', targetPort: 53 },
        { name: 'dns-tcp', port: 53, protocol: 'TCP', targetPort: 53 },
      ],
    },
  });
}
