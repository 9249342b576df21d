/**
 * `--pod-network`: starts the network between the pods of this node and those of other nodes, or removes what an earlier run
 * has set up if it is off. With `auto`, the kind of the cluster decides: one whose nodes provide the services themselves has
 * no network plugin.
 */
import { existsSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { background } from '../../api/machinery/background.ts';
import type { Client } from '../../api/machinery/client.ts';
import { Informers } from '../../api/machinery/informer.ts';
import { nodes } from '../../api/machinery/resources.ts';
import type { NodeManager } from '../node/status/node-manager.ts';
import { DEFAULT_PORTS, type NetworkMode } from '../network/podnetwork/desired-network.ts';
import { hostNetwork } from '../network/podnetwork/host-network.ts';
import { podPacketFilter } from '../network/podnetwork/packet-filter.ts';
import { allowForwarding } from '../network/podnetwork/forwarding.ts';
import { PodNetwork } from '../network/podnetwork/pod-network.ts';
import { POD_NETWORK_LOCK, podNetworkDirectory, removePodNetwork } from '../network/podnetwork/remove-pod-network.ts';
import { takeNamespaceLock } from '../network/namespace-lock.ts';
import type { PodCheckpoints } from '../pods/checkpoints/pod-checkpoints.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { AgentFlags } from '../options/agent-options.ts';
import type { Base } from './base.ts';
import type { AgentEvents } from './events.ts';
import type { Closing, Part } from './lifecycle.ts';

export interface PodNetworkDeps {
  readonly client: Client | undefined;
  readonly checkpoints: PodCheckpoints | undefined;
  readonly node: Pick<NodeManager, 'node' | 'hostIps' | 'podCidrs' | 'onPodCidrs' | 'changed'>;
  readonly events: Pick<AgentEvents, 'aboutNode'>;
  readonly runtime: Pick<Runtime, 'cniPlaces'>;
  /** Whether the nodes of this cluster provide its services. Rejects with the signal's reason. */
  readonly nodesProvideServices: (signal: AbortSignal) => Promise<boolean>;
}

export interface NodePodNetwork extends Part {
  /** Why the network of pods is not ready; empty if it is, or if it is left to a network plugin. */
  problem(): string;
}

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
    return { problem: () => '' };
  }
  const informers = new Informers({ client, clock: base.clock, logger });
  let network: PodNetwork | undefined;
  let running: Promise<void> | undefined;
  const decide = async (): Promise<void> => {
    const isOff = flags.podNetwork === 'auto' && !(await deps.nodesProvideServices(signal));
    if (isOff) return off();
    network = create(base, { ...deps, client, informers, stateDirectory, removeAll });
    deps.node.onPodCidrs(() => network?.changed());
    running = network.run(signal);
  };
  background(decide(), { logger, what: 'Starting the pod network', signal });
  return {
    problem: () => network?.problem() ?? '',
    async close({ hostCleared }: Closing) {
      await network?.close({ remove: hostCleared });
      await running;
      await informers.close();
    },
  };
}

/** The mode and UDP port of the pod network. The port is 0 if the network has none. */
export function podNetworkOf({ podNetwork, podNetworkPort }: Pick<AgentFlags, 'podNetwork' | 'podNetworkPort'>): {
  readonly mode: NetworkMode;
  readonly port: number;
} {
  const mode: NetworkMode = podNetwork === 'auto' || podNetwork === 'none' ? 'vxlan' : (podNetwork as NetworkMode);
  if (podNetwork === 'none' || mode === 'routes') return { mode, port: 0 };
  return { mode, port: podNetworkPort === 0 ? DEFAULT_PORTS[mode] : podNetworkPort };
}

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
  }: PodNetworkDeps & {
    readonly client: Client;
    readonly informers: Informers;
    readonly stateDirectory: string;
    readonly removeAll: () => Promise<void>;
  },
): PodNetwork {
  const own = logger.child({ part: 'pod-network' });
  const { mode, port } = podNetworkOf(flags);
  return new PodNetwork({
    mode,
    port,
    nodeName,
    nodes: informers.for(nodes),
    memory: {
      load: async () => (await checkpoints?.podNetwork()) as never,
      save: (known) => checkpoints?.savePodNetwork(known),
    },
    ranges: () => node.podCidrs(),
    nodeAddresses: () => node.hostIps(),
    hostAddresses: () => Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address)),
    clusterRanges: () => [],
    cniPlaces: () => runtime.cniPlaces(),
    hairpin: flags.hairpinMode !== 'none',
    masqueradeBit: flags.iptablesMasqueradeBit,
    stateDirectory,
    keyLifetimeMs: flags.podNetworkKeyLifetime,
    host: hostNetwork(),
    filter: podPacketFilter(),
    prepareHost: (families) => allowForwarding(families, own),
    async publish(annotations) {
      await client.patch(nodes, '', nodeName, 'merge', { metadata: { annotations } });
    },
    removeAll,
    clock,
    logger: own,
    onProblem: () => node.changed(),
    onRefusal: ({ node: other, reason }) =>
      events.aboutNode(node.node(), 'PodNetworkIncomplete', `The pods of node ${other} are not reachable: ${reason}`),
    lockName: POD_NETWORK_LOCK,
  });
}
