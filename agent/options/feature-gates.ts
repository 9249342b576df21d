/**
 * The feature gates that the agent accepts: those of Kubernetes 1.24, which older configurations set, and those of 1.36,
 * with stage and default. If both releases have a gate, the stage and default of 1.24 apply.
 */
export type GateStage = 'alpha' | 'beta' | 'ga' | 'deprecated';

interface FeatureGate {
  readonly stage: GateStage;
  readonly default: boolean;
  /** The gate can only be set to its default. */
  readonly locked: boolean;
  /** The releases of Kubernetes that have the gate. */
  readonly releases: '1.24' | '1.36' | '1.24 and 1.36';
}

function words(text: string): readonly string[] {
  return text.trim().split(/\s+/);
}

const GATES_OF_1_24: readonly (readonly [stage: GateStage, on: boolean, names: readonly string[]])[] = [
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

const GATES_OF_1_36: readonly (readonly [stage: GateStage, on: boolean, names: readonly string[]])[] = [
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
  for (const [stage, on, names] of GATES_OF_1_36)
    for (const name of names) table.set(name, { stage, default: on, locked: stage === 'ga', releases: '1.36' });
  for (const [stage, on, names] of GATES_OF_1_24)
    for (const name of names)
      table.set(name, { stage, default: on, locked: false, releases: table.has(name) ? '1.24 and 1.36' : '1.24' });
  return new Map([...table].toSorted(([left], [right]) => (left < right ? -1 : 1)));
}

/** All feature gates, sorted by name. */
export const featureGates: ReadonlyMap<string, FeatureGate> = gateTable();

/** The gates that have an effect in the agent, and the effect of each. */
export const activeGates = {
  ComponentFlagz: '/flagz shows the flags',
  ComponentStatusz: '/statusz shows the version and the uptime',
  ContainerCheckpoint: 'POST /checkpoint/<namespace>/<pod>/<container> writes the state of a container into an archive',
  NodeLogQuery: '/logs/?query= reads the logs of services if enableSystemLogQuery is set',
  PodLogsQuerySplitStreams: 'clients can request one of the two streams of a log',
  ClusterTrustBundleProjection: 'projected volumes can contain the certificates of ClusterTrustBundles',
  CPUManager: '--cpu-manager-policy static allocates exclusive CPUs to containers',
  CPUManagerPolicyAlphaOptions: 'alpha options are accepted in --cpu-manager-policy-options',
  CPUManagerPolicyBetaOptions: 'beta options are accepted in --cpu-manager-policy-options',
  PodCertificateRequest: 'projected volumes can contain keys and certificates of their pods',
  EnvFiles: 'environment variables can come from files of volumes (env valueFrom fileKeyRef)',
  DevicePlugins: 'device plugins can register',
  KubeletPodResources: 'pod-resources/kubelet.sock reports the resources of each pod',
  MemoryManager: '--memory-manager-policy Static allocates memory of NUMA nodes to containers',
  NodeDeclaredFeatures: 'the node status declares features for the scheduler',
  ResourceHealthStatus: 'pod statuses report the health of allocated devices',
  TopologyManager: '--topology-manager-policy aligns resources',
  TopologyManagerPolicyAlphaOptions: 'alpha options are accepted in --topology-manager-policy-options',
  TopologyManagerPolicyBetaOptions: 'beta options are accepted in --topology-manager-policy-options',
  KubeletEnsureSecretPulledImages:
    'imagePullCredentialsVerificationPolicy applies to images that are present on the node',
  KubeletCrashLoopBackOffMax: 'crashLoopBackOff.maxContainerRestartPeriod limits the back-off between restarts',
  GracefulNodeShutdown: 'a shutdown of the host waits for pods for the shutdownGracePeriod',
  GracefulNodeShutdownBasedOnPodPriority: 'shutdownGracePeriodByPodPriority counts',
  KubeletServiceAccountTokenForCredentialProviders:
    'credential provider plugins can get service account tokens (tokenAttributes)',
  ReduceDefaultCrashLoopBackOffDecay:
    'the restart back-off of a crashing container begins at 1 s and is limited to 60 s',
  RotateKubeletServerCertificate: '--rotate-server-certificates requests the serving certificate from the cluster',
} as const;

/** A gate that the agent reads. */
export type ActiveGate = keyof typeof activeGates;
