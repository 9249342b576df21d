/** Reads from the API server what `orchlet doctor` checks of the network, with the credentials that this host has. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { nodeNameOf } from '../../agent/host/host-facts.ts';
import { readHostRecord } from '../../agent/host/host-record.ts';
import type { Node, Pod, Service } from '../../api/kinds/kinds.ts';
import { nodes, pods, services } from '../../api/client/resources.ts';
import { isForbidden, isNotFound, tolerate } from '../../api/meta/status-error.ts';
import { type Cluster, withKubeconfig, withOwnKubeconfig } from '../cluster/cluster-access.ts';
import type { CommandIo } from '../command-line/io.ts';
import { refuseForeign } from '../host/owner-rights.ts';
import type { ClusterFacts, ClusterNodeFacts } from './network-checks.ts';
import { SYSTEM_NAMESPACE } from '../../api/meta/system-namespaces.ts';

const JOINED = '/etc/orchlet/agent.kubeconfig';
const TIMEOUT_MS = 5000;
/** The maximum number of objects of a kind that are read. A larger cluster is judged by a part of it. */
const MAX_OBJECTS = 1000;

/** The directories of this host. */
interface HostDirectories {
  readonly data: string;
  /** The root directory of the agent. */
  readonly root: string;
}

/**
 * Runs `work` with the administrator's kubeconfig, or the agent's, which may read less. Resolves to `undefined` if this host
 * has neither. Rejects if root would use that of an agent of another user, because a kubeconfig may name programs.
 */
export async function withClusterOfHost<T>(
  { data, root }: HostDirectories,
  io: CommandIo,
  work: (cluster: Cluster) => Promise<T>,
): Promise<T | undefined> {
  const adminKubeconfig = join(data, 'admin.kubeconfig');
  if (existsSync(adminKubeconfig)) return await withOwnKubeconfig(adminKubeconfig, io, work);
  const ofAgent = [join(root, 'kubeconfig'), JOINED].find((path) => existsSync(path));
  if (ofAgent === undefined) return undefined;
  refuseForeign(dirname(ofAgent), 'command');
  return await withKubeconfig(ofAgent, io, work);
}

/** Reads what the checks need from the API server. Rejects if the API server does not answer within five seconds. */
export async function readClusterFacts({ client, server }: Cluster, rootDirectory: string): Promise<ClusterFacts> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const ownName = (await readHostRecord(rootDirectory))?.nodeName ?? nodeNameOf({ hostnameOverride: '' });
  const kubernetes = (await tolerate(client.get(services, 'default', 'kubernetes', { signal }), isUnreadable)) as
    | Service
    | undefined;
  const dns = (await tolerate(client.get(services, SYSTEM_NAMESPACE, 'kube-dns', { signal }), isUnreadable)) as
    | Service
    | undefined;
  const nodeList = await tolerate(client.list(nodes, { limit: MAX_OBJECTS, signal }), isForbidden);
  const podList = await tolerate(client.list(pods, { limit: MAX_OBJECTS, signal }), isForbidden);
  const podsOf = Map.groupBy(
    (podList?.items ?? []).flatMap((pod) => addressesOf(pod as Pod)),
    ({ node }) => node,
  );
  const [{ port = 443 } = {}] = kubernetes?.spec?.ports ?? [];
  const address = kubernetes?.spec?.clusterIP;
  return {
    server,
    ownName,
    nodes: nodeList?.items.map((node) => nodeFacts(node as Node, podsOf.get(node.metadata.name ?? '') ?? [])),
    kubernetes: address === undefined ? undefined : { address, port },
    nameServer: dns?.spec?.clusterIP,
    domain: 'cluster.local',
  };
}

const isUnreadable = (error: unknown): boolean => isNotFound(error) || isForbidden(error);

interface PodAddress {
  readonly node: string;
  readonly address: string;
}

function addressesOf({ spec, status }: Pod): readonly PodAddress[] {
  if (spec?.hostNetwork === true || status?.phase !== 'Running') return [];
  return (status.podIPs ?? []).map(({ ip: address = '' }) => ({ node: spec?.nodeName ?? '', address }));
}

function nodeFacts({ metadata, spec, status }: Node, podAddresses: readonly PodAddress[]): ClusterNodeFacts {
  const name = metadata.name ?? '';
  return {
    name,
    addresses: (status?.addresses ?? []).filter(({ type }) => type === 'InternalIP').map((entry) => entry.address),
    port: (status?.daemonEndpoints?.kubeletEndpoint as { Port?: number } | undefined)?.Port ?? 10_250,
    podCidrs: spec?.podCIDRs ?? (spec?.podCIDR === undefined ? [] : [spec.podCIDR]),
    podAddresses: podAddresses.map(({ address }) => address),
  };
}
