/**
 * The feature gates that the agent takes: those of the specification and those of Kubernetes 1.36, with stage and default. Where
 * both name a gate the specification's stage and default hold. Unknown gates are refused, locked ones cannot be changed, and
 * every gate that is set without anything following from it here is told so.
 */
export type GateStage = 'alpha' | 'beta' | 'ga' | 'deprecated';

export interface FeatureGate {
  readonly stage: GateStage;
  readonly default: boolean;
  /** Cannot be set to anything but its default. */
  readonly locked: boolean;
  /** Named by the specification, by Kubernetes 1.36, or by both. */
  readonly named: 'specification' | 'release' | 'both';
}

function words(text: string): readonly string[] {
  return text.trim().split(/\s+/);
}

const SPECIFIED: readonly (readonly [stage: GateStage, on: boolean, names: readonly string[]])[] = [
  [
    'beta',
    true,
    words(`
  APIListChunking APIPriorityAndFairness APIResponseCompression AnyVolumeDataSource AppArmor CPUManager
  CPUManagerPolicyBetaOptions CPUManagerPolicyOptions CSIInlineVolume CSIMigration CSIMigrationAWS
  CSIMigrationAzureFile CSIMigrationGCE DaemonSetUpdateSurge DelegateFSGroupToCSIDriver DevicePlugins
  DisableAcceleratorUsageMetrics DownwardAPIHugePages EndpointSliceTerminatingCondition EphemeralContainers
  GRPCContainerProbe GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority IdentifyPodOS
  JobMutableNodeSchedulingDirectives JobReadyPods KubeletCredentialProviders KubeletPodResources
  KubeletPodResourcesGetAllocatable LegacyServiceAccountTokenNoAutoGeneration LocalStorageCapacityIsolation
  LogarithmicScaleDown MemoryManager MixedProtocolLBService NetworkPolicyEndPort OpenAPIEnums OpenAPIV3
  PodDeletionCost PodSecurity RemainingItemCount RotateKubeletServerCertificate ServiceInternalTrafficPolicy
  SizeMemoryBackedVolumes StatefulSetMinReadySeconds StorageVersionHash TopologyAwareHints TopologyManager
  WinOverlay WindowsHostProcessContainers
`),
  ],
  [
    'beta',
    false,
    words(`
  AllBeta CSIMigrationvSphere ExperimentalHostUserNamespaceDefaulting JobTrackingWithFinalizers
  ProbeTerminationGracePeriod
`),
  ],
  [
    'alpha',
    false,
    words(`
  APIServerIdentity APIServerTracing AllAlpha CPUManagerPolicyAlphaOptions CSIMigrationPortworx CSIMigrationRBD
  CSIVolumeHealth ContextualLogging CronJobTimeZone CustomCPUCFSQuotaPeriod CustomResourceValidationExpressions
  DisableCloudProviders DisableKubeletCloudCredentialProviders ExpandedDNSConfig HPAContainerMetrics
  HPAScaleToZero HonorPVReclaimPolicy InTreePluginAWSUnregister InTreePluginAzureDiskUnregister
  InTreePluginAzureFileUnregister InTreePluginGCEUnregister InTreePluginOpenStackUnregister
  InTreePluginPortworxUnregister InTreePluginRBDUnregister InTreePluginvSphereUnregister KubeletInUserNamespace
  LocalStorageCapacityIsolationFSQuotaMonitoring MaxUnavailableStatefulSet MemoryQoS MinDomainsInPodTopologySpread
  NetworkPolicyStatus NodeOutOfServiceVolumeDetach NodeSwap PodAndContainerStatsFromCRI ProcMountType
  ProxyTerminatingEndpoints QOSReserved ReadWriteOncePod RecoverVolumeExpansionFailure SeccompDefault
  ServerSideFieldValidation ServiceIPStaticSubrange StatefulSetAutoDeletePVC StorageVersionAPI
  VolumeCapacityPriority WinDSR
`),
  ],
];

const RELEASED: readonly (readonly [stage: GateStage, on: boolean, names: readonly string[]])[] = [
  [
    'beta',
    true,
    words(`
  APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth AtomicFIFO
  AuthorizePodWebsocketUpgradeCreatePermission CPUManagerPolicyBetaOptions CRDObservedGenerationTracking
  ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation ClientsAllowTLSCacheGC ComponentFlagz
  ComponentStatusz ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContextualLogging
  DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource DRAPartitionableDevices
  DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization DRASchedulerFilterTimeout
  DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency EnvFiles
  ExtendWebSocketsToKubelet GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance
  HostnameOverride InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling
  InPlacePodVerticalScalingInitContainers KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages
  KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot LoggingBetaOptions
  MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge
  MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures
  NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching PLEGOnDemandRelist PodDeletionCost
  PodLevelResources PodReadyToStartContainersCondition PodTopologyLabelsAdmission PortForwardWebsockets
  PreventStaticPodAPIReferences RelaxedServiceNameValidation ReloadKubeletClientCAFile
  ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus ResourceHealthStatusMessage
  RestartAllContainersOnContainerExits RotateKubeletServerCertificate SchedulerAsyncPreemption
  SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction SizeBasedListCostEstimate
  StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet
  StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison StorageVersionHash
  StrictIPCIDRValidation StructuredAuthenticationConfigurationEgressSelector
  StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
  TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
  UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO WatchCacheInitializationPostStartHook WatchList
  WatchListClient WindowsGracefulNodeShutdown
`),
  ],
  [
    'beta',
    false,
    words(`
  AllBeta ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode CoordinatedLeaderElection
  DRADeviceTaintRules LocalStorageCapacityIsolationFSQuotaMonitoring MaxUnavailableStatefulSet
  PodCertificateRequest SELinuxMount SchedulerAsyncAPICalls StorageVersionMigrator
`),
  ],
  [
    'alpha',
    false,
    words(`
  APIServingWithRoutine AllAlpha AllowUnsafeMalformedObjectDeletion CBORServingAndStorage
  CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth ClientsAllowCBOR ClientsPreferCBOR
  CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ContainerStopSignals
  ControllerManagerReleaseLeaderElectionLockOnExit CrossNamespaceVolumeDataSource DRAListTypeAttributes
  DRANodeAllocatableResources DRAResourcePoolStatus DRAWorkloadResourceClaims EventedPLEG GangScheduling
  GenericWorkload HPAScaleToZero ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs
  InPlacePodVerticalScalingExclusiveMemory KubeletInUserNamespace LoggingAlphaOptions
  ManifestBasedAdmissionControlConfig MemoryQoS MinimumKubeletVersion MutablePVNodeAffinity NativeHistograms
  PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodLevelResourceManagers
  PodLogsQuerySplitStreams PodsAPI QOSReserved ReduceDefaultCrashLoopBackOffDecay RouteExternalCertificate
  RuntimeClassInImageCriApi ShardedListAndWatch StorageCapacityScoring StoragePerformantSecurityPolicy
  StorageVersionAPI TaintTolerationComparisonOperators TopologyAwareWorkloadScheduling
  TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport VolumeLimitScaling
  WindowsCPUAndMemoryAffinity WorkloadAwarePreemption WorkloadWithJob
`),
  ],
  [
    'ga',
    true,
    words(`
  AnonymousAuthConfigurableEndpoints AuthorizeNodeWithSelectors AuthorizeWithSelectors ConsistentListFromCache
  DisableAllocatorDualWrite DynamicResourceAllocation ImageMaximumGCAge ImageVolume InPlacePodVerticalScaling
  JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy KubeletFineGrainedAuthz KubeletPSI
  KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletTracing MultiCIDRServiceAllocator
  MutableCSINodeAllocatableCount NodeInclusionPolicyInPodTopologySpread NodeLogQuery OrderedNamespaceDeletion
  PodIndexLabel PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PodObservedGenerationTracking
  PreferSameTrafficDistribution RecursiveReadOnlyMounts RelaxedDNSSearchValidation
  RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization SELinuxChangePolicy
  SELinuxMountReadWriteOncePod SchedulerQueueingHints ServiceTrafficDistribution SidecarContainers
  StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration
  StructuredAuthorizationConfiguration SupplementalGroupsPolicy SystemdWatchdog TopologyManagerPolicyOptions
  UserNamespacesPodSecurityStandards UserNamespacesSupport VolumeAttributesClass
`),
  ],
];

function gateTable(): ReadonlyMap<string, FeatureGate> {
  const table = new Map<string, FeatureGate>();
  for (const [stage, on, names] of RELEASED)
    for (const name of names) table.set(name, { stage, default: on, locked: stage === 'ga', named: 'release' });
  for (const [stage, on, names] of SPECIFIED)
    for (const name of names)
      table.set(name, { stage, default: on, locked: false, named: table.has(name) ? 'both' : 'specification' });
  return new Map([...table].toSorted(([left], [right]) => (left < right ? -1 : 1)));
}

/** By name, in order. */
export const featureGates: ReadonlyMap<string, FeatureGate> = gateTable();

/** The gates that the agent reads, and what each does. */
export const activeGates = {
  ComponentFlagz: '/flagz shows the flags',
  ComponentStatusz: '/statusz shows what runs since when',
  ContainerCheckpoint: 'POST /checkpoint/<namespace>/<pod>/<container> writes the state of a container into an archive',
  NodeLogQuery: '/logs/?query= reads the logs of services where enableSystemLogQuery says so',
  PodLogsQuerySplitStreams: 'one of the two streams of a log may be asked for',
  ClusterTrustBundleProjection: 'projected volumes may hold certificates of cluster trust bundles',
  CPUManager: '--cpu-manager-policy static gives containers processors of their own',
  CPUManagerPolicyAlphaOptions: 'alpha options in --cpu-manager-policy-options are taken',
  CPUManagerPolicyBetaOptions: 'beta options in --cpu-manager-policy-options are taken',
  PodCertificateRequest: 'projected volumes may hold keys and certificates of their pods',
  EnvFiles: 'variables may come from files of volumes (env valueFrom fileKeyRef)',
  DevicePlugins: 'device plugins may register',
  KubeletPodResources: 'pod-resources/kubelet.sock tells which pod has which resources',
  MemoryManager: '--memory-manager-policy Static promises containers memory of NUMA nodes',
  NodeDeclaredFeatures: 'the status of the node tells features that schedulers may count on',
  ResourceHealthStatus: 'statuses of pods tell the health of their devices',
  TopologyManager: '--topology-manager-policy aligns resources',
  TopologyManagerPolicyAlphaOptions: 'alpha options in --topology-manager-policy-options are taken',
  TopologyManagerPolicyBetaOptions: 'beta options in --topology-manager-policy-options are taken',
  KubeletEnsureSecretPulledImages: 'imagePullCredentialsVerificationPolicy holds for images that are on the node',
  KubeletCrashLoopBackOffMax: 'crashLoopBackOff.maxContainerRestartPeriod shortens the longest wait between restarts',
  GracefulNodeShutdown: 'a shutdown of the host waits for pods where shutdownGracePeriod says so',
  GracefulNodeShutdownBasedOnPodPriority: 'shutdownGracePeriodByPodPriority counts',
  KubeletServiceAccountTokenForCredentialProviders:
    'credential provider plugins may be given tokens of service accounts (tokenAttributes)',
  ReduceDefaultCrashLoopBackOffDecay: 'restarts of a crashing container wait 1 s at first and 60 s at most',
  RotateKubeletServerCertificate: '--rotate-server-certificates asks the cluster for the serving certificate',
} as const;

export type ActiveGate = keyof typeof activeGates;
