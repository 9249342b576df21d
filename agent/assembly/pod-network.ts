/**
 * Starts the network between the pods of this node and those of other nodes by `--pod-network`. With `auto`, clusters whose
 * nodes provide the services themselves select the mode, and others have a network plugin.
 */
import { existsSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { background } from '../../api/machinery/background.ts';
import type { Client } from '../../api/client/client.ts';
import type { Informers } from '../../api/client/informer.ts';
import { remoteInformers } from '../../api/client/remote-informers.ts';
import { nodes } from '../../api/client/resources.ts';
import type { NodeManager } from '../node/status/node-manager.ts';
import { DEFAULT_PORTS, type NetworkMode } from '../network/podnetwork/desired-network.ts';
import { hostNetwork } from '../network/podnetwork/host-network.ts';
import { podPacketFilter } from '../network/podnetwork/packet-filter.ts';
import { allowForwarding } from '../network/podnetwork/forwarding.ts';
import { PodNetwork } from '../network/podnetwork/pod-network.ts';
import { POD_NETWORK_LOCK, podNetworkDirectory, removePodNetwork } from '../network/podnetwork/remove-pod-network.ts';
import { hostNftables } from '../network/nftables.ts';
import { takeNamespaceLock } from '../network/namespace-lock.ts';
import type { PodCheckpoints } from '../pods/checkpoints/pod-checkpoints.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { AgentFlags } from '../options/agent-options.ts';
import type { Base } from './base.ts';
import type { AgentEvents } from './events.ts';
import type { Closing, Part } from './lifecycle.ts';
import { POD_NETWORK, POD_RANGES } from '../../api/meta/orchlet-annotations.ts';

interface PodNetworkDeps {
  readonly client: Client | undefined;
  readonly checkpoints: PodCheckpoints | undefined;
  readonly node: Pick<NodeManager, 'node' | 'hostIps' | 'podCidrs' | 'onPodCidrs' | 'changed'>;
  readonly events: Pick<AgentEvents, 'nodeEvent'>;
  readonly runtime: Pick<Runtime, 'cniPlaces'>;
  /** Whether the nodes of this cluster provide its services. Rejects with the signal's reason if it aborts. */
  readonly nodesProvideServices: (signal: AbortSignal) => Promise<boolean>;
  /** Returns what the control plane publishes for agents under this key: the mode, or the ranges of pods; empty if nothing. */
  readonly annotation: (key: string) => string;
}

/** The network of pods as the status of the node and the container runtime need to know it. */
export interface NodePodNetwork extends Part {
  /**
   * Why the network of pods is not ready; empty if it is, while the mode is not known, or if it is left to a network plugin.
   */
  problem(): string;
  /** Resolves to the MTU of pods once the mode is known; `undefined` if it is that of the host, or without such a network. */
  mtu(): Promise<number | undefined>;
}

/** Decides the mode in the background, and starts the network or removes what an earlier run left. */
export function createPodNetwork(base: Base, deps: PodNetworkDeps): NodePodNetwork {
  const { flags, logger, rootDirectory, signal } = base;
  const { client } = deps;
  const stateDirectory = podNetworkDirectory(rootDirectory);
  const removeAll = (): Promise<void> => removePodNetwork({ stateDirectory });
  const off = async (): Promise<void> => {
    if (!existsSync(stateDirectory)) return;
    const lock = await takeNamespaceLock(POD_NETWORK_LOCK);
    if (lock === undefined) return;
    await removeAll().finally(() => lock.close());
  };
  if (client === undefined || flags.podNetwork === 'none') {
    background(off(), { logger, what: 'Removing the pod network', signal });
    return { problem: () => '', mtu: () => Promise.resolve(undefined) };
  }
  const informers = remoteInformers({ client, clock: base.clock, logger });
  let network: PodNetwork | undefined;
  let running: Promise<void> | undefined;
  const decide = async (): Promise<void> => {
    const mode = await chosenMode(flags.podNetwork, deps, signal);
    if (mode === undefined) return off();
    network = create(base, { ...deps, mode, client, informers, stateDirectory, removeAll });
    deps.node.onPodCidrs(() => network?.changed());
    running = network.run(signal);
  };
  const decided = decide();
  background(decided, { logger, what: 'Starting the pod network', signal });
  return {
    problem: () => network?.problem() ?? '',
    async mtu() {
      await decided;
      return network?.mtu();
    },
    async close({ hostCleared }: Closing) {
      await network?.close({ remove: hostCleared });
      await running;
      await informers.close();
    },
  };
}

/** Returns the UDP port that other nodes send to; 0 if the network has none. */
export function podNetworkPort(mode: string, flags: Pick<AgentFlags, 'podNetworkPort'>): number {
  const port = flags.podNetworkPort;
  if (mode === 'none' || mode === 'routes') return 0;
  return port === 0 ? DEFAULT_PORTS[mode === 'wireguard' ? mode : 'vxlan'] : port;
}

/**
 * Resolves to the mode in which this node takes part in the pod network. Returns `undefined` if the network is left to a
 * network plugin.
 */
export async function chosenMode(
  flag: string,
  { nodesProvideServices, annotation }: Pick<PodNetworkDeps, 'nodesProvideServices' | 'annotation'>,
  signal: AbortSignal,
): Promise<NetworkMode | undefined> {
  if (flag !== 'auto') return flag as NetworkMode;
  if (!(await nodesProvideServices(signal))) return undefined;
  const mode = modeOfCluster(annotation(POD_NETWORK));
  return mode === 'none' ? undefined : mode;
}

/** Returns the mode that the annotation selects. The default is `vxlan`, because earlier control planes do not set it. */
export const modeOfCluster = (annotation: string): NetworkMode | 'none' =>
  annotation === 'none' || annotation === 'wireguard' || annotation === 'routes' ? annotation : 'vxlan';

function create(
  { flags, clock, logger, nodeName }: Base,
  {
    client,
    checkpoints,
    node,
    events,
    runtime,
    informers,
    stateDirectory,
    removeAll,
    mode,
    annotation,
  }: PodNetworkDeps & {
    readonly mode: NetworkMode;
    readonly client: Client;
    readonly informers: Informers;
    readonly stateDirectory: string;
    readonly removeAll: () => Promise<void>;
  },
): PodNetwork {
  const partLogger = logger.child({ part: 'pod-network' });
  return new PodNetwork({
    mode,
    port: podNetworkPort(mode, flags),
    nodeName,
    nodes: informers.for(nodes),
    memory: {
      load: async () => (await checkpoints?.podNetwork()) as never,
      save: (clusterNodes) => checkpoints?.savePodNetwork(clusterNodes),
    },
    ranges: () => node.podCidrs(),
    nodeAddresses: () => node.hostIps(),
    hostAddresses: () => Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address)),
    clusterRanges: () => annotation(POD_RANGES).split(','),
    cniPlaces: () => runtime.cniPlaces(),
    hairpin: flags.hairpinMode !== 'none',
    masqueradeBit: flags.iptablesMasqueradeBit,
    stateDirectory,
    keyLifetimeMs: flags.podNetworkKeyLifetime,
    host: hostNetwork(),
    filter: podPacketFilter(),
    nft: hostNftables(),
    prepareHost: (families) => allowForwarding(families, partLogger),
    async publish(annotations) {
      await client.patch(nodes, '', nodeName, { type: 'merge', body: { metadata: { annotations } } });
    },
    removeAll,
    clock,
    logger: partLogger,
    onProblem: () => node.changed(),
    onRefusal: ({ node: other, reason }) =>
      events.nodeEvent(node.node(), 'PodNetworkIncomplete', `The pods of node ${other} are not reachable: ${reason}`),
    takeLock: () => takeNamespaceLock(POD_NETWORK_LOCK),
  });
}
