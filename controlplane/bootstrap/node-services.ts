/**
 * What agents need that give services their addresses and names themselves: the right to read endpoints, and the service
 * `kube-dns`, which holds an address for the name server that runs on each node. Called once at start; what an administrator
 * changed stays.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/machinery/client.ts';
import { clusterRoleBindings, services } from '../../api/machinery/resources.ts';
import { isAlreadyExists, isInvalid, isNotFound } from '../../api/meta/status-error.ts';
import { serviceAddress } from './service-addresses.ts';

const NAMESPACE = 'kube-system';
const NAME = 'kube-dns';
/** The tenth of the range, where people look for it. */
const DNS_ADDRESS = 10;

export async function ensureNodeServices(
  client: Client,
  { serviceClusterCidrs, logger }: { readonly serviceClusterCidrs: readonly string[]; readonly logger: Logger },
): Promise<void> {
  await unlessThere(
    client.create(clusterRoleBindings, '', {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRoleBinding',
      metadata: { name: 'orchlet:node-proxier' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'system:node-proxier' },
      subjects: [{ kind: 'Group', apiGroup: 'rbac.authorization.k8s.io', name: 'system:nodes' }],
    }),
  );
  if (await hasDns(client)) return;
  const address = serviceAddress(serviceClusterCidrs, DNS_ADDRESS);
  try {
    await createDns(client, address);
  } catch (error) {
    if (!isInvalid(error)) throw error;
    // Taken by another service, of an older cluster.
    logger.warn({ address }, 'Another service has the usual address of kube-dns, so kube-dns gets another one');
    await createDns(client, undefined);
  }
}

/** Looked at before: a second one would be refused for its address, not for its name. */
async function hasDns(client: Client): Promise<boolean> {
  try {
    await client.get(services, NAMESPACE, NAME);
    return true;
  } catch (error) {
    if (isNotFound(error)) return false;
    throw error;
  }
}

async function createDns(client: Client, clusterIP: string | undefined): Promise<void> {
  await unlessThere(
    client.create(services, NAMESPACE, {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: {
        name: NAME,
        namespace: NAMESPACE,
        labels: { 'k8s-app': 'kube-dns', 'kubernetes.io/cluster-service': 'true', 'kubernetes.io/name': 'KubeDNS' },
        // Agents look for it, to know that the names and addresses of services are theirs to give.
        annotations: { 'orchlet.local/served-by': 'nodes' },
      },
      spec: {
        ...(clusterIP === undefined ? {} : { clusterIP }),
        ports: [
          { name: 'dns', port: 53, protocol: 'UDP', targetPort: 53 },
          { name: 'dns-tcp', port: 53, protocol: 'TCP', targetPort: 53 },
        ],
      },
    }),
  );
}

async function unlessThere(write: Promise<unknown>): Promise<void> {
  try {
    await write;
  } catch (error) {
    if (!isAlreadyExists(error)) throw error;
  }
}
