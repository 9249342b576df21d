/** Defines the flags of the controllers and the scheduler. */
import { quoteText } from '../../api/meta/quote.ts';
import { flag, type FlagValues } from '../../api/component/flags.ts';
import { parseCidr } from '../../api/meta/ip-addresses.ts';
import { checkControllers } from '../controllers/controller-names.ts';
import type { ControllerOptions } from '../controllers/controller-options.ts';

const CONTROLLERS = 'Controllers';
/**
 * The maximum number of bits by which the prefix of a node is longer than that of the cluster, as in kube-controller-manager.
 */
const LONGEST_SPLIT = 16;

/** Returns the fault of the flag, which may have one CIDR or one of each family. Without any, nodes get no pod CIDRs. */
function checkClusterCidrs(cidrs: readonly string[]): string | undefined {
  const parsed = cidrs.map(parseCidr);
  const wrong = cidrs.find((_, at) => parsed[at] === undefined);
  if (wrong !== undefined) return `${quoteText(wrong)} is not a CIDR such as 10.244.0.0/16`;
  const families = parsed.map((cidr) => cidr?.family);
  return new Set(families).size < families.length ? 'must hold one CIDR, or one IPv4 and one IPv6 CIDR' : undefined;
}

/** The rows by the property under which the program reads them. */
export const controllersFlags = {
  controllers: flag({
    name: 'controllers',
    type: 'list',
    default: ['*'],
    group: CONTROLLERS,
    help: 'Controllers to run: * is all that are on by default, foo enables one, -foo disables one.',
    check: checkControllers,
  }),
  clusterCidr: flag({
    name: 'cluster-cidr',
    type: 'list',
    default: ['10.244.0.0/16'],
    group: CONTROLLERS,
    help: 'Ranges of pod addresses, of which each node gets a part.',
    check: checkClusterCidrs,
  }),
  nodeCidrMaskSizeIpv4: flag({
    name: 'node-cidr-mask-size-ipv4',
    type: 'integer',
    default: 24,
    group: CONTROLLERS,
    help: 'Prefix length of the pod range of a node, for IPv4.',
    check: (size) => (size >= 1 && size <= 32 ? undefined : 'must be between 1 and 32'),
  }),
  nodeCidrMaskSizeIpv6: flag({
    name: 'node-cidr-mask-size-ipv6',
    type: 'integer',
    default: 64,
    group: CONTROLLERS,
    help: 'Prefix length of the pod range of a node, for IPv6.',
    check: (size) => (size >= 1 && size <= 128 ? undefined : 'must be between 1 and 128'),
  }),
  clusterSigningDuration: flag({
    name: 'cluster-signing-duration',
    type: 'duration',
    default: 31_536_000_000,
    group: CONTROLLERS,
    help: 'Maximum lifetime of certificates that are signed.',
  }),
  clusterName: flag({
    name: 'cluster-name',
    type: 'string',
    default: 'kubernetes',
    group: CONTROLLERS,
    help: 'Name of the cluster, which cloud providers write into what they create.',
    noEffect: 'no cloud provider is part of orchlet',
  }),
  nodeMonitorPeriod: flag({
    name: 'node-monitor-period',
    type: 'duration',
    default: 5000,
    group: CONTROLLERS,
    help: 'How often the state of nodes is checked.',
  }),
  nodeMonitorGracePeriod: flag({
    name: 'node-monitor-grace-period',
    type: 'duration',
    default: 50_000,
    group: CONTROLLERS,
    help: 'How long a node may be silent before it is unknown.',
  }),
  terminatedPodGcThreshold: flag({
    name: 'terminated-pod-gc-threshold',
    type: 'integer',
    default: 12_500,
    group: CONTROLLERS,
    help: 'Number of finished pods that are kept; beyond it, the oldest are deleted.',
  }),
  concurrentDeploymentSyncs: flag({
    name: 'concurrent-deployment-syncs',
    type: 'integer',
    default: 5,
    group: CONTROLLERS,
    help: 'Deployments that are reconciled at the same time.',
  }),
  concurrentStatefulsetSyncs: flag({
    name: 'concurrent-statefulset-syncs',
    type: 'integer',
    default: 5,
    group: CONTROLLERS,
    help: 'StatefulSets that are reconciled at the same time.',
  }),
  concurrentReplicasetSyncs: flag({
    name: 'concurrent-replicaset-syncs',
    type: 'integer',
    default: 5,
    group: CONTROLLERS,
    help: 'ReplicaSets, and as many ReplicationControllers, that are reconciled at the same time.',
  }),
  concurrentDaemonsetSyncs: flag({
    name: 'concurrent-daemonset-syncs',
    type: 'integer',
    default: 2,
    group: CONTROLLERS,
    help: 'DaemonSets that are reconciled at the same time.',
  }),
  concurrentJobSyncs: flag({
    name: 'concurrent-job-syncs',
    type: 'integer',
    default: 5,
    group: CONTROLLERS,
    help: 'Jobs that are reconciled at the same time.',
  }),
  concurrentCronJobSyncs: flag({
    name: 'concurrent-cron-job-syncs',
    type: 'integer',
    default: 5,
    group: CONTROLLERS,
    help: 'CronJobs that are reconciled at the same time.',
  }),
  concurrentEndpointSyncs: flag({
    name: 'concurrent-endpoint-syncs',
    type: 'integer',
    default: 5,
    group: CONTROLLERS,
    help: 'Services whose Endpoints are reconciled at the same time.',
  }),
  concurrentServiceEndpointSyncs: flag({
    name: 'concurrent-service-endpoint-syncs',
    type: 'integer',
    default: 5,
    group: CONTROLLERS,
    help: 'Services whose endpoint slices are reconciled at the same time.',
  }),
  concurrentNamespaceSyncs: flag({
    name: 'concurrent-namespace-syncs',
    type: 'integer',
    default: 10,
    group: CONTROLLERS,
    help: 'Terminating namespaces that are emptied at the same time.',
  }),
  concurrentGcSyncs: flag({
    name: 'concurrent-gc-syncs',
    type: 'integer',
    default: 20,
    group: CONTROLLERS,
    help: 'Objects whose owners the garbage collector checks at the same time.',
  }),
  concurrentResourceQuotaSyncs: flag({
    name: 'concurrent-resource-quota-syncs',
    type: 'integer',
    default: 5,
    group: CONTROLLERS,
    help: 'Quotas whose usage is counted at the same time.',
  }),
  concurrentServiceaccountTokenSyncs: flag({
    name: 'concurrent-serviceaccount-token-syncs',
    type: 'integer',
    default: 5,
    group: CONTROLLERS,
    help: 'Secrets of service accounts that are reconciled at the same time.',
  }),
  concurrentTtlAfterFinishedSyncs: flag({
    name: 'concurrent-ttl-after-finished-syncs',
    type: 'integer',
    default: 5,
    group: CONTROLLERS,
    help: 'Finished Jobs that are removed at the same time.',
  }),
  maxEndpointsPerSlice: flag({
    name: 'max-endpoints-per-slice',
    type: 'integer',
    default: 100,
    group: CONTROLLERS,
    help: 'Maximum number of endpoints in a slice.',
  }),
  mirroringMaxEndpointsPerSubset: flag({
    name: 'mirroring-max-endpoints-per-subset',
    type: 'integer',
    default: 1000,
    group: CONTROLLERS,
    help: 'Maximum number of addresses of a subset that are mirrored into slices.',
  }),
  nodeStartupGracePeriod: flag({
    name: 'node-startup-grace-period',
    type: 'duration',
    default: 60_000,
    group: CONTROLLERS,
    help: 'How long a new node may be silent before it is unknown.',
  }),
  nodeEvictionRate: flag({
    name: 'node-eviction-rate',
    type: 'number',
    default: 0.1,
    group: CONTROLLERS,
    help: 'Nodes per second whose pods are evicted while their zone is healthy.',
  }),
  secondaryNodeEvictionRate: flag({
    name: 'secondary-node-eviction-rate',
    type: 'number',
    default: 0.01,
    group: CONTROLLERS,
    help: 'Nodes per second whose pods are evicted while their zone is unhealthy.',
  }),
  largeClusterSizeThreshold: flag({
    name: 'large-cluster-size-threshold',
    type: 'integer',
    default: 50,
    group: CONTROLLERS,
    help: 'Number of nodes above which a zone counts as large.',
  }),
  unhealthyZoneThreshold: flag({
    name: 'unhealthy-zone-threshold',
    type: 'number',
    default: 0.55,
    group: CONTROLLERS,
    help: 'Fraction of the nodes of a zone that must be not ready for the zone to count as unhealthy.',
  }),
  resourceQuotaSyncPeriod: flag({
    name: 'resource-quota-sync-period',
    type: 'duration',
    default: 300_000,
    group: CONTROLLERS,
    help: 'How often the usage of all quotas is recounted.',
  }),
  horizontalPodAutoscalerSyncPeriod: flag({
    name: 'horizontal-pod-autoscaler-sync-period',
    type: 'duration',
    default: 15_000,
    group: CONTROLLERS,
    help: 'How often autoscalers evaluate their metrics.',
  }),
  horizontalPodAutoscalerTolerance: flag({
    name: 'horizontal-pod-autoscaler-tolerance',
    type: 'number',
    default: 0.1,
    group: CONTROLLERS,
    help: 'How far the ratio of current to desired usage may be from 1 without scaling.',
  }),
  horizontalPodAutoscalerDownscaleStabilization: flag({
    name: 'horizontal-pod-autoscaler-downscale-stabilization',
    type: 'duration',
    default: 300_000,
    group: CONTROLLERS,
    help: 'For how long autoscalers consider earlier recommendations before they scale down.',
  }),
  horizontalPodAutoscalerCpuInitializationPeriod: flag({
    name: 'horizontal-pod-autoscaler-cpu-initialization-period',
    type: 'duration',
    default: 300_000,
    group: CONTROLLERS,
    help: 'For how long after its start the CPU usage of a pod may be ignored.',
  }),
  horizontalPodAutoscalerInitialReadinessDelay: flag({
    name: 'horizontal-pod-autoscaler-initial-readiness-delay',
    type: 'duration',
    default: 30_000,
    group: CONTROLLERS,
    help: 'For how long after its start a change of the readiness of a pod counts as its initial readiness.',
  }),
  legacyServiceAccountTokenCleanUpPeriod: flag({
    name: 'legacy-service-account-token-clean-up-period',
    type: 'duration',
    default: 31_536_000_000,
    group: CONTROLLERS,
    help: 'How long an unused token that was generated for a Secret is kept.',
  }),
  scheduler: flag({
    name: 'scheduler',
    type: 'boolean',
    default: true,
    group: CONTROLLERS,
    help: 'Run the scheduler in this process.',
  }),
} as const;

/** Returns why the prefix sizes of the nodes do not fit the ranges of the cluster, or `undefined` if they do. */
export function clusterCidrProblem(flags: FlagValues<typeof controllersFlags>): string | undefined {
  for (const text of flags.clusterCidr) {
    const cidr = parseCidr(text);
    if (cidr === undefined) continue;
    const [name, size] =
      cidr.family === 4
        ? (['node-cidr-mask-size-ipv4', flags.nodeCidrMaskSizeIpv4] as const)
        : (['node-cidr-mask-size-ipv6', flags.nodeCidrMaskSizeIpv6] as const);
    if (size < cidr.prefixLength) return `--${name} ${size} is shorter than the prefix of --cluster-cidr ${text}`;
    if (size - cidr.prefixLength > LONGEST_SPLIT)
      return `--${name} ${size} splits --cluster-cidr ${text} into more than 2^${LONGEST_SPLIT} parts`;
  }
  return undefined;
}

/** Returns the options of the controllers. */
export function controllerOptions(flags: FlagValues<typeof controllersFlags>): ControllerOptions {
  return {
    ...flags,
    concurrentReplicaSetSyncs: flags.concurrentReplicasetSyncs,
    concurrentStatefulSetSyncs: flags.concurrentStatefulsetSyncs,
    concurrentDaemonSetSyncs: flags.concurrentDaemonsetSyncs,
    concurrentGarbageCollectorSyncs: flags.concurrentGcSyncs,
    concurrentServiceAccountTokenSyncs: flags.concurrentServiceaccountTokenSyncs,
    clusterCidrs: flags.clusterCidr,
    clusterSigningDurationMs: flags.clusterSigningDuration,
    nodeMonitorPeriodMs: flags.nodeMonitorPeriod,
    nodeMonitorGracePeriodMs: flags.nodeMonitorGracePeriod,
    nodeStartupGracePeriodMs: flags.nodeStartupGracePeriod,
    resourceQuotaSyncPeriodMs: flags.resourceQuotaSyncPeriod,
    horizontalPodAutoscalerSyncPeriodMs: flags.horizontalPodAutoscalerSyncPeriod,
    horizontalPodAutoscalerDownscaleStabilizationMs: flags.horizontalPodAutoscalerDownscaleStabilization,
    horizontalPodAutoscalerCpuInitializationPeriodMs: flags.horizontalPodAutoscalerCpuInitializationPeriod,
    horizontalPodAutoscalerInitialReadinessDelayMs: flags.horizontalPodAutoscalerInitialReadinessDelay,
    legacyServiceAccountTokenCleanUpPeriodMs: flags.legacyServiceAccountTokenCleanUpPeriod,
  };
}
