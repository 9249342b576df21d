/** Creates the node manager from the options: identity, labels and taints, reserved resources, intervals. */
import type { HttpClient } from '../../api/client/http-client.ts';
import type { EvictionSettings } from '../resources/eviction/thresholds.ts';
import { hasUnifiedCgroups } from '../host/host-facts.ts';
import { nodeReservations } from './node-reservations.ts';
import { NodeManager, type NodeManagerOptions } from '../node/status/node-manager.ts';
import type { NodeIdentity } from '../node/status/node-registration.ts';
import type { AgentFlags } from '../options/agent-options.ts';
import { parseTaint } from '../options/json-forms.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { AgentEvents } from './events.ts';
import type { Base } from './base.ts';
import { LOCAL_VOLUMES } from '../../api/meta/orchlet-annotations.ts';

interface NodeDeps {
  readonly version: string;
  readonly runtime: Runtime;
  /** The client for heartbeats. Without it the node exists in this process only. */
  readonly client: HttpClient | undefined;
  readonly settings: EvictionSettings;
  readonly events: AgentEvents;
  readonly onStep: NonNullable<NodeManagerOptions['onStep']>;
  readonly onRead: NonNullable<NodeManagerOptions['onRead']>;
}

/** Creates the node manager. */
export function createNode(base: Base, deps: NodeDeps): NodeManager {
  const { flags, clock, logger, nodeName, rootDirectory } = base;
  const { version, runtime, client, settings, events, onStep, onRead } = deps;
  const manager: NodeManager = new NodeManager({
    client,
    clock,
    logger,
    runtime,
    rootDirectory,
    version,
    identity: nodeIdentity(nodeName, flags),
    nodeIps: flags.nodeIp,
    registerNode: flags.registerNode,
    maxPods: flags.maxPods,
    podsPerCore: flags.podsPerCore,
    maxImages: flags.nodeStatusMaxImages,
    reserved: nodeReservations(flags, settings.thresholds),
    reportStorage: flags.localStorageCapacityIsolation,
    declaredFeatures: base.effective.gates.enabled('NodeDeclaredFeatures') ? DECLARED_FEATURES : [],
    onStep,
    onRead,
    statusIntervalMs: flags.nodeStatusUpdateFrequency,
    reportIntervalMs: flags.nodeStatusReportFrequency,
    leaseDurationSeconds: flags.nodeLeaseDurationSeconds,
    podCidr: flags.podCidr,
    random: Math.random,
    hasCgroupV1: !hasUnifiedCgroups(),
    onTransition: ({ reason, message, type }) => events.nodeEvent(manager.node(), reason, message, type),
  });
  return manager;
}

function nodeIdentity(nodeName: string, flags: AgentFlags): NodeIdentity {
  return {
    nodeName,
    registerSchedulable: flags.registerSchedulable,
    labels: flags.nodeLabels,
    taints: [
      ...flags.registerWithTaints.map(parseTaint),
      ...(flags.cloudProvider === 'external' ? [UNINITIALIZED] : []),
    ],
    providerId: flags.providerId,
    annotations: nodeAnnotations(flags),
  };
}

/** The features that a node can declare and this agent has. */
export const DECLARED_FEATURES: readonly string[] = [
  'ExtendWebSocketsToKubelet',
  'InPlacePodLevelResourcesVerticalScaling',
  'InPlacePodVerticalScalingInitContainers',
  'RestartAllContainersOnContainerExits',
];

/** The taint of a new node with an external cloud provider. A cloud controller removes it when the node has its addresses. */
const UNINITIALIZED = { key: 'node.cloudprovider.kubernetes.io/uninitialized', value: 'true', effect: 'NoSchedule' };

function nodeAnnotations(flags: AgentFlags): Readonly<Record<string, string>> {
  return {
    // The control plane of orchlet creates its storage class for local volumes when such a node exists.
    [LOCAL_VOLUMES]: 'true',
    ...(flags.enableControllerAttachDetach ? { 'volumes.kubernetes.io/controller-managed-attach-detach': 'true' } : {}),
    ...(flags.cloudProvider === 'external' && flags.nodeIp.length > 0
      ? { 'alpha.kubernetes.io/provided-node-ip': flags.nodeIp.join(',') }
      : {}),
  };
}
