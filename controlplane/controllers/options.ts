/** The options of the controllers: the flags of kube-controller-manager, with its defaults. */
/**
 * The flags of the controllers. Names that end in `Ms` are in milliseconds, eviction rates are in nodes per second, and
 * `unhealthyZoneThreshold` and the tolerance are fractions.
 */
export interface ControllerOptions {
  /** `--controllers`: `*`, names, and names that begin with `-`. */
  readonly controllers: readonly string[];
  readonly concurrentDeploymentSyncs: number;
  readonly concurrentReplicaSetSyncs: number;
  readonly concurrentStatefulSetSyncs: number;
  readonly concurrentDaemonSetSyncs: number;
  readonly concurrentJobSyncs: number;
  readonly concurrentCronJobSyncs: number;
  readonly concurrentEndpointSyncs: number;
  readonly concurrentServiceEndpointSyncs: number;
  readonly concurrentNamespaceSyncs: number;
  readonly concurrentGarbageCollectorSyncs: number;
  readonly concurrentResourceQuotaSyncs: number;
  readonly concurrentServiceAccountTokenSyncs: number;
  readonly concurrentTtlAfterFinishedSyncs: number;
  readonly maxEndpointsPerSlice: number;
  readonly mirroringMaxEndpointsPerSubset: number;
  readonly nodeMonitorPeriodMs: number;
  readonly nodeMonitorGracePeriodMs: number;
  readonly nodeStartupGracePeriodMs: number;
  readonly nodeEvictionRate: number;
  readonly secondaryNodeEvictionRate: number;
  readonly largeClusterSizeThreshold: number;
  readonly unhealthyZoneThreshold: number;
  readonly terminatedPodGcThreshold: number;
  readonly clusterSigningDurationMs: number;
  /** `--allocate-node-cidrs` with `--cluster-cidr`. */
  readonly clusterCidrs: readonly string[];
  readonly nodeCidrMaskSizeIpv4: number;
  readonly nodeCidrMaskSizeIpv6: number;
  readonly resourceQuotaSyncPeriodMs: number;
  readonly horizontalPodAutoscalerSyncPeriodMs: number;
  readonly horizontalPodAutoscalerTolerance: number;
  readonly horizontalPodAutoscalerDownscaleStabilizationMs: number;
  readonly horizontalPodAutoscalerCpuInitializationPeriodMs: number;
  readonly horizontalPodAutoscalerInitialReadinessDelayMs: number;
  readonly legacyServiceAccountTokenCleanUpPeriodMs: number;
}

/** The values of the flags that are not given. */
export const defaultControllerOptions: ControllerOptions = {
  controllers: ['*'],
  concurrentDeploymentSyncs: 5,
  concurrentReplicaSetSyncs: 5,
  concurrentStatefulSetSyncs: 5,
  concurrentDaemonSetSyncs: 2,
  concurrentJobSyncs: 5,
  concurrentCronJobSyncs: 5,
  concurrentEndpointSyncs: 5,
  concurrentServiceEndpointSyncs: 5,
  concurrentNamespaceSyncs: 10,
  concurrentGarbageCollectorSyncs: 20,
  concurrentResourceQuotaSyncs: 5,
  concurrentServiceAccountTokenSyncs: 5,
  concurrentTtlAfterFinishedSyncs: 5,
  maxEndpointsPerSlice: 100,
  mirroringMaxEndpointsPerSubset: 1000,
  nodeMonitorPeriodMs: 5_000,
  nodeMonitorGracePeriodMs: 50_000,
  nodeStartupGracePeriodMs: 60_000,
  nodeEvictionRate: 0.1,
  secondaryNodeEvictionRate: 0.01,
  largeClusterSizeThreshold: 50,
  unhealthyZoneThreshold: 0.55,
  terminatedPodGcThreshold: 12_500,
  clusterSigningDurationMs: 8760 * 3600_000,
  clusterCidrs: [],
  nodeCidrMaskSizeIpv4: 24,
  nodeCidrMaskSizeIpv6: 64,
  resourceQuotaSyncPeriodMs: 300_000,
  horizontalPodAutoscalerSyncPeriodMs: 15_000,
  horizontalPodAutoscalerTolerance: 0.1,
  horizontalPodAutoscalerDownscaleStabilizationMs: 300_000,
  horizontalPodAutoscalerCpuInitializationPeriodMs: 300_000,
  horizontalPodAutoscalerInitialReadinessDelayMs: 30_000,
  legacyServiceAccountTokenCleanUpPeriodMs: 8760 * 3600_000,
};
