/**
 * The messages and methods of CRI v1 (`runtime.v1`) that the agent uses, as one table: each field by its number and type.
 * `[]` is a repeated field, `map` is from string to string; enumerations are int32, their values stand in `CRI`. The types
 * of requests and answers are derived from the table, the wire codec (`codec.ts`) is built from it.
 */

export const MESSAGES = {
  AttachRequest: { containerId: '1 string', stdin: '2 bool', tty: '3 bool', stdout: '4 bool', stderr: '5 bool' },
  AttachResponse: { url: '1 string' },
  AuthConfig: {
    username: '1 string',
    password: '2 string',
    auth: '3 string',
    serverAddress: '4 string',
    identityToken: '5 string',
    registryToken: '6 string',
  },
  CDIDevice: { name: '1 string' },
  Capability: { addCapabilities: '1 string[]', dropCapabilities: '2 string[]', addAmbientCapabilities: '3 string[]' },
  CheckpointContainerRequest: { containerId: '1 string', location: '2 string', timeout: '3 int64' },
  CheckpointContainerResponse: {},
  Container: {
    id: '1 string',
    podSandboxId: '2 string',
    metadata: '3 ContainerMetadata',
    image: '4 ImageSpec',
    imageRef: '5 string',
    state: '6 int32',
    createdAt: '7 int64',
    labels: '8 map',
    annotations: '9 map',
    imageId: '10 string',
  },
  ContainerAttributes: { id: '1 string', metadata: '2 ContainerMetadata', labels: '3 map', annotations: '4 map' },
  ContainerConfig: {
    metadata: '1 ContainerMetadata',
    image: '2 ImageSpec',
    command: '3 string[]',
    args: '4 string[]',
    workingDir: '5 string',
    envs: '6 KeyValue[]',
    mounts: '7 Mount[]',
    devices: '8 Device[]',
    labels: '9 map',
    annotations: '10 map',
    logPath: '11 string',
    stdin: '12 bool',
    stdinOnce: '13 bool',
    tty: '14 bool',
    linux: '15 LinuxContainerConfig',
    cdiDevices: '17 CDIDevice[]',
    stopSignal: '18 int32',
  },
  ContainerEventResponse: {
    containerId: '1 string',
    containerEventType: '2 int32',
    createdAt: '3 int64',
    podSandboxStatus: '4 PodSandboxStatus',
    containersStatuses: '5 ContainerStatus[]',
  },
  ContainerFilter: { id: '1 string', state: '2 ContainerStateValue', podSandboxId: '3 string', labelSelector: '4 map' },
  ContainerMetadata: { name: '1 string', attempt: '2 uint32' },
  ContainerResources: { linux: '1 LinuxContainerResources' },
  ContainerStateValue: { state: '1 int32' },
  ContainerStats: {
    attributes: '1 ContainerAttributes',
    cpu: '2 CpuUsage',
    memory: '3 MemoryUsage',
    writableLayer: '4 FilesystemUsage',
    swap: '5 SwapUsage',
    io: '6 IoUsage',
  },
  ContainerStatsFilter: { id: '1 string', podSandboxId: '2 string', labelSelector: '3 map' },
  ContainerStatus: {
    id: '1 string',
    metadata: '2 ContainerMetadata',
    state: '3 int32',
    createdAt: '4 int64',
    startedAt: '5 int64',
    finishedAt: '6 int64',
    exitCode: '7 int32',
    image: '8 ImageSpec',
    imageRef: '9 string',
    reason: '10 string',
    message: '11 string',
    labels: '12 map',
    annotations: '13 map',
    mounts: '14 Mount[]',
    logPath: '15 string',
    resources: '16 ContainerResources',
    imageId: '17 string',
    user: '18 ContainerUser',
    stopSignal: '19 int32',
  },
  ContainerStatusRequest: { containerId: '1 string', verbose: '2 bool' },
  ContainerStatusResponse: { status: '1 ContainerStatus', info: '2 map' },
  ContainerUser: { linux: '1 LinuxContainerUser' },
  CpuUsage: { timestamp: '1 int64', usageCoreNanoSeconds: '2 UInt64Value', usageNanoCores: '3 UInt64Value' },
  CreateContainerRequest: {
    podSandboxId: '1 string',
    config: '2 ContainerConfig',
    sandboxConfig: '3 PodSandboxConfig',
  },
  CreateContainerResponse: { containerId: '1 string' },
  DNSConfig: { servers: '1 string[]', searches: '2 string[]', options: '3 string[]' },
  Device: { containerPath: '1 string', hostPath: '2 string', permissions: '3 string' },
  ExecRequest: {
    containerId: '1 string',
    cmd: '2 string[]',
    tty: '3 bool',
    stdin: '4 bool',
    stdout: '5 bool',
    stderr: '6 bool',
  },
  ExecResponse: { url: '1 string' },
  ExecSyncRequest: { containerId: '1 string', cmd: '2 string[]', timeout: '3 int64' },
  ExecSyncResponse: { stdout: '1 bytes', stderr: '2 bytes', exitCode: '3 int32' },
  FilesystemIdentifier: { mountpoint: '1 string' },
  FilesystemUsage: {
    timestamp: '1 int64',
    fsId: '2 FilesystemIdentifier',
    usedBytes: '3 UInt64Value',
    inodesUsed: '4 UInt64Value',
  },
  GetEventsRequest: {},
  HugepageLimit: { pageSize: '1 string', limit: '2 uint64' },
  IDMapping: { hostId: '1 uint32', containerId: '2 uint32', length: '3 uint32' },
  Image: {
    id: '1 string',
    repoTags: '2 string[]',
    repoDigests: '3 string[]',
    size: '4 uint64',
    uid: '5 Int64Value',
    username: '6 string',
    spec: '7 ImageSpec',
    pinned: '8 bool',
  },
  ImageFilter: { image: '1 ImageSpec' },
  ImageFsInfoRequest: {},
  ImageFsInfoResponse: { imageFilesystems: '1 FilesystemUsage[]', containerFilesystems: '2 FilesystemUsage[]' },
  ImageSpec: {
    image: '1 string',
    annotations: '2 map',
    userSpecifiedImage: '18 string',
    runtimeHandler: '19 string',
    imageRef: '20 string',
  },
  ImageStatusRequest: { image: '1 ImageSpec', verbose: '2 bool' },
  ImageStatusResponse: { image: '1 Image', info: '2 map' },
  Int64Value: { value: '1 int64' },
  IoUsage: { timestamp: '1 int64' },
  KeyValue: { key: '1 string', value: '2 bytes' },
  LinuxContainerConfig: { resources: '1 LinuxContainerResources', securityContext: '2 LinuxContainerSecurityContext' },
  LinuxContainerResources: {
    cpuPeriod: '1 int64',
    cpuQuota: '2 int64',
    cpuShares: '3 int64',
    memoryLimitInBytes: '4 int64',
    oomScoreAdj: '5 int64',
    cpusetCpus: '6 string',
    cpusetMems: '7 string',
    hugepageLimits: '8 HugepageLimit[]',
    unified: '9 map',
    memorySwapLimitInBytes: '10 int64',
  },
  LinuxContainerSecurityContext: {
    capabilities: '1 Capability',
    privileged: '2 bool',
    namespaceOptions: '3 NamespaceOption',
    selinuxOptions: '4 SELinuxOption',
    runAsUser: '5 Int64Value',
    runAsGroup: '12 Int64Value',
    runAsUsername: '6 string',
    readonlyRootfs: '7 bool',
    supplementalGroups: '8 int64[]',
    supplementalGroupsPolicy: '17 int32',
    noNewPrivs: '11 bool',
    maskedPaths: '13 string[]',
    readonlyPaths: '14 string[]',
    seccomp: '15 SecurityProfile',
    apparmor: '16 SecurityProfile',
    apparmorProfile: '9 string',
    seccompProfilePath: '10 string',
  },
  LinuxContainerUser: { uid: '1 int64', gid: '2 int64', supplementalGroups: '3 int64[]' },
  LinuxPodSandboxConfig: {
    cgroupParent: '1 string',
    securityContext: '2 LinuxSandboxSecurityContext',
    sysctls: '3 map',
    overhead: '4 LinuxContainerResources',
    resources: '5 LinuxContainerResources',
  },
  LinuxPodSandboxStats: {
    cpu: '1 CpuUsage',
    memory: '2 MemoryUsage',
    network: '3 NetworkUsage',
    process: '4 ProcessUsage',
    containers: '5 ContainerStats[]',
    io: '6 IoUsage',
  },
  LinuxPodSandboxStatus: { namespaces: '1 Namespace' },
  LinuxRuntimeConfiguration: { cgroupDriver: '1 int32' },
  LinuxSandboxSecurityContext: {
    namespaceOptions: '1 NamespaceOption',
    selinuxOptions: '2 SELinuxOption',
    runAsUser: '3 Int64Value',
    runAsGroup: '8 Int64Value',
    readonlyRootfs: '4 bool',
    supplementalGroups: '5 int64[]',
    supplementalGroupsPolicy: '11 int32',
    privileged: '6 bool',
    seccomp: '9 SecurityProfile',
    apparmor: '10 SecurityProfile',
    seccompProfilePath: '7 string',
  },
  ListContainerStatsRequest: { filter: '1 ContainerStatsFilter' },
  ListContainerStatsResponse: { stats: '1 ContainerStats[]' },
  ListContainersRequest: { filter: '1 ContainerFilter' },
  ListContainersResponse: { containers: '1 Container[]' },
  ListImagesRequest: { filter: '1 ImageFilter' },
  ListImagesResponse: { images: '1 Image[]' },
  ListPodSandboxRequest: { filter: '1 PodSandboxFilter' },
  ListPodSandboxResponse: { items: '1 PodSandbox[]' },
  ListPodSandboxStatsRequest: { filter: '1 PodSandboxStatsFilter' },
  ListPodSandboxStatsResponse: { stats: '1 PodSandboxStats[]' },
  MemoryUsage: {
    timestamp: '1 int64',
    workingSetBytes: '2 UInt64Value',
    availableBytes: '3 UInt64Value',
    usageBytes: '4 UInt64Value',
    rssBytes: '5 UInt64Value',
    pageFaults: '6 UInt64Value',
    majorPageFaults: '7 UInt64Value',
  },
  Mount: {
    containerPath: '1 string',
    hostPath: '2 string',
    readonly: '3 bool',
    selinuxRelabel: '4 bool',
    propagation: '5 int32',
    uidMappings: '6 IDMapping[]',
    gidMappings: '7 IDMapping[]',
    recursiveReadOnly: '8 bool',
    image: '9 ImageSpec',
    imageSubPath: '10 string',
  },
  Namespace: { options: '2 NamespaceOption' },
  NamespaceOption: {
    network: '1 int32',
    pid: '2 int32',
    ipc: '3 int32',
    targetId: '4 string',
    usernsOptions: '5 UserNamespace',
  },
  NetworkConfig: { podCidr: '1 string' },
  NetworkInterfaceUsage: {
    name: '1 string',
    rxBytes: '2 UInt64Value',
    rxErrors: '3 UInt64Value',
    txBytes: '4 UInt64Value',
    txErrors: '5 UInt64Value',
  },
  NetworkUsage: {
    timestamp: '1 int64',
    defaultInterface: '2 NetworkInterfaceUsage',
    interfaces: '3 NetworkInterfaceUsage[]',
  },
  PodIP: { ip: '1 string' },
  PodSandbox: {
    id: '1 string',
    metadata: '2 PodSandboxMetadata',
    state: '3 int32',
    createdAt: '4 int64',
    labels: '5 map',
    annotations: '6 map',
    runtimeHandler: '7 string',
  },
  PodSandboxAttributes: { id: '1 string', metadata: '2 PodSandboxMetadata', labels: '3 map', annotations: '4 map' },
  PodSandboxConfig: {
    metadata: '1 PodSandboxMetadata',
    hostname: '2 string',
    logDirectory: '3 string',
    dnsConfig: '4 DNSConfig',
    portMappings: '5 PortMapping[]',
    labels: '6 map',
    annotations: '7 map',
    linux: '8 LinuxPodSandboxConfig',
  },
  PodSandboxFilter: { id: '1 string', state: '2 PodSandboxStateValue', labelSelector: '3 map' },
  PodSandboxMetadata: { name: '1 string', uid: '2 string', namespace: '3 string', attempt: '4 uint32' },
  PodSandboxNetworkStatus: { ip: '1 string', additionalIps: '2 PodIP[]' },
  PodSandboxStateValue: { state: '1 int32' },
  PodSandboxStats: { attributes: '1 PodSandboxAttributes', linux: '2 LinuxPodSandboxStats' },
  PodSandboxStatsFilter: { id: '1 string', labelSelector: '2 map' },
  PodSandboxStatus: {
    id: '1 string',
    metadata: '2 PodSandboxMetadata',
    state: '3 int32',
    createdAt: '4 int64',
    network: '5 PodSandboxNetworkStatus',
    linux: '6 LinuxPodSandboxStatus',
    labels: '7 map',
    annotations: '8 map',
    runtimeHandler: '9 string',
  },
  PodSandboxStatusRequest: { podSandboxId: '1 string', verbose: '2 bool' },
  PodSandboxStatusResponse: {
    status: '1 PodSandboxStatus',
    info: '2 map',
    containersStatuses: '3 ContainerStatus[]',
    timestamp: '4 int64',
  },
  PortForwardRequest: { podSandboxId: '1 string', port: '2 int32[]' },
  PortForwardResponse: { url: '1 string' },
  PortMapping: { protocol: '1 int32', containerPort: '2 int32', hostPort: '3 int32', hostIp: '4 string' },
  ProcessUsage: { timestamp: '1 int64', processCount: '2 UInt64Value' },
  PullImageRequest: { image: '1 ImageSpec', auth: '2 AuthConfig', sandboxConfig: '3 PodSandboxConfig' },
  PullImageResponse: { imageRef: '1 string' },
  RemoveContainerRequest: { containerId: '1 string' },
  RemoveContainerResponse: {},
  RemoveImageRequest: { image: '1 ImageSpec' },
  RemoveImageResponse: {},
  RemovePodSandboxRequest: { podSandboxId: '1 string' },
  RemovePodSandboxResponse: {},
  ReopenContainerLogRequest: { containerId: '1 string' },
  ReopenContainerLogResponse: {},
  RunPodSandboxRequest: { config: '1 PodSandboxConfig', runtimeHandler: '2 string' },
  RunPodSandboxResponse: { podSandboxId: '1 string' },
  RuntimeCondition: { type: '1 string', status: '2 bool', reason: '3 string', message: '4 string' },
  RuntimeConfig: { networkConfig: '1 NetworkConfig' },
  RuntimeConfigRequest: {},
  RuntimeConfigResponse: { linux: '1 LinuxRuntimeConfiguration' },
  RuntimeFeatures: { supplementalGroupsPolicy: '1 bool', userNamespacesHostNetwork: '2 bool' },
  RuntimeHandler: { name: '1 string', features: '2 RuntimeHandlerFeatures' },
  RuntimeHandlerFeatures: { recursiveReadOnlyMounts: '1 bool', userNamespaces: '2 bool' },
  RuntimeStatus: { conditions: '1 RuntimeCondition[]' },
  SELinuxOption: { user: '1 string', role: '2 string', type: '3 string', level: '4 string' },
  SecurityProfile: { profileType: '1 int32', localhostRef: '2 string' },
  StartContainerRequest: { containerId: '1 string' },
  StartContainerResponse: {},
  StatusRequest: { verbose: '1 bool' },
  StatusResponse: {
    status: '1 RuntimeStatus',
    info: '2 map',
    runtimeHandlers: '3 RuntimeHandler[]',
    features: '4 RuntimeFeatures',
  },
  StopContainerRequest: { containerId: '1 string', timeout: '2 int64' },
  StopContainerResponse: {},
  StopPodSandboxRequest: { podSandboxId: '1 string' },
  StopPodSandboxResponse: {},
  SwapUsage: { timestamp: '1 int64', swapAvailableBytes: '2 UInt64Value', swapUsageBytes: '3 UInt64Value' },
  UInt64Value: { value: '1 uint64' },
  UpdateContainerResourcesRequest: {
    containerId: '1 string',
    linux: '2 LinuxContainerResources',
    annotations: '4 map',
  },
  UpdateContainerResourcesResponse: {},
  UpdateRuntimeConfigRequest: { runtimeConfig: '1 RuntimeConfig' },
  UpdateRuntimeConfigResponse: {},
  UserNamespace: { mode: '1 int32', uids: '2 IDMapping[]', gids: '3 IDMapping[]' },
  VersionRequest: { version: '1 string' },
  VersionResponse: {
    version: '1 string',
    runtimeName: '2 string',
    runtimeVersion: '3 string',
    runtimeApiVersion: '4 string',
  },
} as const;

/** Of containerd's own event service (`containerd.services.events.v1`): where its CRI has no events yet. */
export const CONTAINERD_MESSAGES = {
  SubscribeRequest: { filters: '1 string[]' },
  Envelope: { namespace: '2 string', topic: '3 string' },
} as const;

/** Service, request, answer. The last of `getContainerEvents` comes as a stream. */
export const METHODS = {
  version: ['RuntimeService', 'VersionRequest', 'VersionResponse'],
  runPodSandbox: ['RuntimeService', 'RunPodSandboxRequest', 'RunPodSandboxResponse'],
  stopPodSandbox: ['RuntimeService', 'StopPodSandboxRequest', 'StopPodSandboxResponse'],
  removePodSandbox: ['RuntimeService', 'RemovePodSandboxRequest', 'RemovePodSandboxResponse'],
  podSandboxStatus: ['RuntimeService', 'PodSandboxStatusRequest', 'PodSandboxStatusResponse'],
  listPodSandbox: ['RuntimeService', 'ListPodSandboxRequest', 'ListPodSandboxResponse'],
  createContainer: ['RuntimeService', 'CreateContainerRequest', 'CreateContainerResponse'],
  startContainer: ['RuntimeService', 'StartContainerRequest', 'StartContainerResponse'],
  stopContainer: ['RuntimeService', 'StopContainerRequest', 'StopContainerResponse'],
  removeContainer: ['RuntimeService', 'RemoveContainerRequest', 'RemoveContainerResponse'],
  listContainers: ['RuntimeService', 'ListContainersRequest', 'ListContainersResponse'],
  containerStatus: ['RuntimeService', 'ContainerStatusRequest', 'ContainerStatusResponse'],
  updateContainerResources: ['RuntimeService', 'UpdateContainerResourcesRequest', 'UpdateContainerResourcesResponse'],
  reopenContainerLog: ['RuntimeService', 'ReopenContainerLogRequest', 'ReopenContainerLogResponse'],
  execSync: ['RuntimeService', 'ExecSyncRequest', 'ExecSyncResponse'],
  exec: ['RuntimeService', 'ExecRequest', 'ExecResponse'],
  attach: ['RuntimeService', 'AttachRequest', 'AttachResponse'],
  portForward: ['RuntimeService', 'PortForwardRequest', 'PortForwardResponse'],
  listContainerStats: ['RuntimeService', 'ListContainerStatsRequest', 'ListContainerStatsResponse'],
  listPodSandboxStats: ['RuntimeService', 'ListPodSandboxStatsRequest', 'ListPodSandboxStatsResponse'],
  updateRuntimeConfig: ['RuntimeService', 'UpdateRuntimeConfigRequest', 'UpdateRuntimeConfigResponse'],
  status: ['RuntimeService', 'StatusRequest', 'StatusResponse'],
  checkpointContainer: ['RuntimeService', 'CheckpointContainerRequest', 'CheckpointContainerResponse'],
  getContainerEvents: ['RuntimeService', 'GetEventsRequest', 'ContainerEventResponse'],
  runtimeConfig: ['RuntimeService', 'RuntimeConfigRequest', 'RuntimeConfigResponse'],
  listImages: ['ImageService', 'ListImagesRequest', 'ListImagesResponse'],
  imageStatus: ['ImageService', 'ImageStatusRequest', 'ImageStatusResponse'],
  pullImage: ['ImageService', 'PullImageRequest', 'PullImageResponse'],
  removeImage: ['ImageService', 'RemoveImageRequest', 'RemoveImageResponse'],
  imageFsInfo: ['ImageService', 'ImageFsInfoRequest', 'ImageFsInfoResponse'],
} as const;

/** Values of enumerations. */
export const CRI = {
  namespace: { pod: 0, container: 1, node: 2, target: 3 },
  propagation: { private: 0, 'host-to-container': 1, bidirectional: 2 },
  protocol: { TCP: 0, UDP: 1, SCTP: 2 },
  profile: { RuntimeDefault: 0, Unconfined: 1, Localhost: 2 },
  groupsPolicy: { Merge: 0, Strict: 1 },
  sandboxReady: 0,
  containerStates: ['created', 'running', 'exited', 'unknown'],
  events: ['created', 'started', 'stopped', 'deleted'],
  cgroupDrivers: ['systemd', 'cgroupfs'],
} as const;

/** By the order of the enumeration: the runtime's default, then signals by name. */
export const STOP_SIGNALS: readonly string[] = (
  'RUNTIME_DEFAULT SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE ' +
  'SIGPOLL SIGPROF SIGPWR SIGQUIT SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 ' +
  'SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ SIGRTMIN SIGRTMIN+1 SIGRTMIN+2 SIGRTMIN+3 SIGRTMIN+4 SIGRTMIN+5 SIGRTMIN+6 ' +
  'SIGRTMIN+7 SIGRTMIN+8 SIGRTMIN+9 SIGRTMIN+10 SIGRTMIN+11 SIGRTMIN+12 SIGRTMIN+13 SIGRTMIN+14 SIGRTMIN+15 SIGRTMAX-14 ' +
  'SIGRTMAX-13 SIGRTMAX-12 SIGRTMAX-11 SIGRTMAX-10 SIGRTMAX-9 SIGRTMAX-8 SIGRTMAX-7 SIGRTMAX-6 SIGRTMAX-5 SIGRTMAX-4 ' +
  'SIGRTMAX-3 SIGRTMAX-2 SIGRTMAX-1 SIGRTMAX'
).split(' ');

export type Messages = typeof MESSAGES;
export type MessageName = keyof Messages;
export type MethodName = keyof typeof METHODS;

type Scalar<T> = T extends 'string'
  ? string
  : T extends 'bool'
    ? boolean
    : T extends 'bytes'
      ? Buffer
      : T extends 'map'
        ? Readonly<Record<string, string>>
        : T extends 'int32' | 'int64' | 'uint32' | 'uint64'
          ? number
          : never;

type Sent<F> = F extends `${number} ${infer T}[]`
  ? readonly SentOne<T>[]
  : F extends `${number} ${infer T}`
    ? SentOne<T>
    : never;
type SentOne<T> = T extends MessageName ? Outgoing<T> : Scalar<T>;
/** A message to send: what is left out has the default of its type. */
export type Outgoing<N extends MessageName> = { readonly [F in keyof Messages[N]]?: Sent<Messages[N][F]> };

type Got<F> = F extends `${number} ${infer T}[]`
  ? readonly GotOne<T>[]
  : F extends `${number} ${infer T}`
    ? T extends MessageName
      ? Incoming<T> | null
      : Scalar<T>
    : never;
type GotOne<T> = T extends MessageName ? Incoming<T> : Scalar<T>;
/** A message that came: scalars, lists and maps are there, a message that was not sent is null. */
export type Incoming<N extends MessageName> = { readonly [F in keyof Messages[N]]: Got<Messages[N][F]> };

export type Request<M extends MethodName> = Outgoing<(typeof METHODS)[M][1]>;
export type Answer<M extends MethodName> = Incoming<(typeof METHODS)[M][2]>;
