/** The node manager by the agent's options: identity, labels and taints, what is reserved, how often it tells. */
import type { HttpClient } from '../../api/machinery/http-client.ts';
import type { EvictionSettings } from '../resources/eviction/eviction-manager.ts';
import { nodeReservations } from './node-protection.ts';
import { NodeManager, type NodeManagerOptions } from '../node/status/node-manager.ts';
import type { AgentFlags } from '../options/agent-options.ts';
import { parseTaint } from '../options/json-forms.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { AgentEvents } from './api-readers.ts';
import type { Base } from './base.ts';

export function createNode(
  base: Base,
  version: string,
  runtime: Runtime,
  client: HttpClient | undefined,
  settings: EvictionSettings,
  events: AgentEvents,
  others: Pick<NodeManagerOptions, 'volumesInUse' | 'deviceCapacity' | 'onStep'>,
): NodeManager {
  const { flags, clock, logger, nodeName, rootDirectory } = base;
  const manager: NodeManager = new NodeManager({
    client,
    clock,
    logger,
    runtime,
    nodeName,
    rootDirectory,
    version,
    serverPort: flags.port,
    nodeIps: flags.nodeIp,
    registerNode: flags.registerNode,
    registerSchedulable: flags.registerSchedulable,
    labels: flags.nodeLabels,
    taints: [
      ...flags.registerWithTaints.map(parseTaint),
      ...(flags.cloudProvider === 'external' ? [UNINITIALIZED] : []),
    ],
    providerId: flags.providerId,
    annotations: nodeAnnotations(flags),
    maxPods: flags.maxPods,
    podsPerCore: flags.podsPerCore,
    maxImages: flags.nodeStatusMaxImages,
    reserved: nodeReservations(flags, settings.thresholds),
    tellStorage: flags.localStorageCapacityIsolation,
    declaredFeatures: base.effective.gates.enabled('NodeDeclaredFeatures') ? DECLARED_FEATURES : [],
    ...others,
    statusIntervalMs: flags.nodeStatusUpdateFrequency,
    reportIntervalMs: flags.nodeStatusReportFrequency,
    leaseDurationSeconds: flags.nodeLeaseDurationSeconds,
    podCidr: flags.podCidr,
    random: Math.random,
    onTransition: (reason, message) => events.aboutNode(manager.node(), reason, message, 'Normal'),
  });
  return manager;
}

/** The features that a node can declare and this agent has. */
export const DECLARED_FEATURES: readonly string[] = [
  'ExtendWebSocketsToKubelet',
  'InPlacePodLevelResourcesVerticalScaling',
  'InPlacePodVerticalScalingInitContainers',
  'RestartAllContainersOnContainerExits',
];

/** Until a cloud controller has told where the node is and how it is reached. */
const UNINITIALIZED = { key: 'node.cloudprovider.kubernetes.io/uninitialized', value: 'true', effect: 'NoSchedule' };

function nodeAnnotations(flags: AgentFlags): Readonly<Record<string, string>> {
  return {
    ...(flags.enableControllerAttachDetach ? { 'volumes.kubernetes.io/controller-managed-attach-detach': 'true' } : {}),
    ...(flags.cloudProvider === 'external' && flags.nodeIp.length > 0
      ? { 'alpha.kubernetes.io/provided-node-ip': flags.nodeIp.join(',') }
      : {}),
  };
}
