/**
 * The options of the controllers: the values of the flags that `controlplane/options/controllers.ts` defines. Names that
 * end in `Ms` are in milliseconds, eviction rates are in nodes per second, and `unhealthyZoneThreshold` and the tolerance
 * are fractions.
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
  /** `--cluster-cidr`: the ranges of which each node gets a part. */
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
