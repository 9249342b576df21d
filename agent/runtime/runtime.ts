/**
 * The container runtime boundary, shaped as CRI v1: pod sandboxes, containers, images, stats, streams.
 *
 * `cri/` is a thin adapter over gRPC, `docker/` implements the same over dockerode, `test/fakes/fake-runtime.ts` in memory;
 * one contract suite runs against the three. Above it nobody knows which runtime there is.
 */

declare const brand: unique symbol;
export type ContainerId = string & { readonly [brand]: 'container' };
export type SandboxId = string & { readonly [brand]: 'sandbox' };

export type RuntimeErrorCode =
  | 'not-found'
  | 'already-exists'
  | 'image-not-found'
  /** The registry refused the credentials. */
  | 'unauthorized'
  /** The container could not be made (`CreateContainerError`) or its process not be started (`RunContainerError`). */
  | 'invalid'
  | 'unavailable'
  | 'unsupported'
  | 'timeout'
  | 'unknown';

export class RuntimeError extends Error {
  readonly code: RuntimeErrorCode;
  constructor(code: RuntimeErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'RuntimeError';
    this.code = code;
  }
}

export interface PodIdentity {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
  readonly attempt: number;
}

export type NamespaceMode = 'pod' | 'container' | 'node' | 'target';

export interface NamespaceOptions {
  readonly network: 'pod' | 'node';
  readonly pid: NamespaceMode;
  readonly ipc: 'pod' | 'node';
  /** With `pid: 'target'`. */
  readonly targetId?: ContainerId;
  readonly userNamespace?: { readonly uids: IdMapping; readonly gids: IdMapping };
}

export interface IdMapping {
  readonly hostId: number;
  readonly containerId: number;
  readonly length: number;
}

export interface SecurityProfile {
  readonly type: 'RuntimeDefault' | 'Unconfined' | 'Localhost';
  /** Absolute path of the profile on the host (seccomp), or its name (AppArmor). */
  readonly localhost?: string;
}

export interface SeLinuxOptions {
  readonly user?: string;
  readonly role?: string;
  readonly type?: string;
  readonly level?: string;
}

export interface PortMapping {
  readonly protocol: 'TCP' | 'UDP' | 'SCTP';
  readonly containerPort: number;
  readonly hostPort: number;
  readonly hostIp: string;
}

export interface SandboxConfig {
  readonly pod: PodIdentity;
  readonly hostname: string;
  /** `/var/log/pods/<ns>_<name>_<uid>`; exists. */
  readonly logDirectory: string;
  readonly dns:
    | { readonly servers: readonly string[]; readonly searches: readonly string[]; readonly options: readonly string[] }
    | undefined;
  readonly portMappings: readonly PortMapping[];
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  /** `''`: the runtime's own. */
  readonly cgroupParent: string;
  readonly sysctls: Readonly<Record<string, string>>;
  readonly namespaces: NamespaceOptions;
  readonly runAsUser?: number;
  readonly runAsGroup?: number;
  readonly supplementalGroups: readonly number[];
  readonly privileged: boolean;
  readonly readOnlyRootFilesystem: boolean;
  readonly seccomp: SecurityProfile;
  readonly seLinux?: SeLinuxOptions;
  /** RuntimeClass handler, `''` the default. */
  readonly runtimeHandler: string;
}

export interface SandboxStatus {
  readonly id: SandboxId;
  readonly pod: PodIdentity;
  readonly state: 'ready' | 'not-ready';
  readonly createdAtMs: number;
  /** The first is the primary; empty on the node's network. */
  readonly ips: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly networkMode: 'pod' | 'node';
  readonly runtimeHandler: string;
}

export interface Mount {
  readonly containerPath: string;
  /** `''` with `image`. */
  readonly hostPath: string;
  readonly readonly: boolean;
  readonly recursiveReadOnly: boolean;
  readonly propagation: 'private' | 'host-to-container' | 'bidirectional';
  readonly seLinuxRelabel: boolean;
  /** Image volumes: the reference as the runtime knows it. */
  readonly image?: string;
  readonly imageSubPath?: string;
}

export interface Device {
  readonly containerPath: string;
  readonly hostPath: string;
  /** Of `r`, `w`, `m`. */
  readonly permissions: string;
}

export interface LinuxResources {
  readonly cpuPeriodUs: number;
  /** 0: no quota. */
  readonly cpuQuotaUs: number;
  readonly cpuShares: number;
  /** 0: no limit. */
  readonly memoryLimitBytes: number;
  readonly memorySwapLimitBytes: number;
  readonly oomScoreAdj: number;
  readonly cpusetCpus: string;
  readonly cpusetMems: string;
  readonly hugepageLimits: readonly { readonly pageSize: string; readonly limitBytes: number }[];
  /** cgroup v2. */
  readonly unified: Readonly<Record<string, string>>;
  /** 0: no limit. */
  readonly pidsLimit: number;
}

export interface ContainerSecurity {
  readonly addCapabilities: readonly string[];
  readonly dropCapabilities: readonly string[];
  readonly privileged: boolean;
  readonly namespaces: NamespaceOptions;
  readonly runAsUser?: number;
  readonly runAsUserName?: string;
  readonly runAsGroup?: number;
  readonly supplementalGroups: readonly number[];
  readonly supplementalGroupsPolicy: 'Merge' | 'Strict';
  readonly readOnlyRootFilesystem: boolean;
  readonly noNewPrivileges: boolean;
  readonly maskedPaths: readonly string[] | 'default' | 'none';
  readonly seccomp: SecurityProfile;
  readonly appArmor?: SecurityProfile;
  readonly seLinux?: SeLinuxOptions;
}

export interface ContainerConfig {
  readonly name: string;
  readonly attempt: number;
  /** The id that `images.ensure` gave, or a reference. */
  readonly image: string;
  /** As the user wrote it, for status. */
  readonly userImage: string;
  readonly command: readonly string[];
  readonly args: readonly string[];
  readonly workingDir: string;
  readonly env: readonly { readonly name: string; readonly value: string }[];
  readonly mounts: readonly Mount[];
  readonly devices: readonly Device[];
  readonly cdiDevices: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  /** Relative to the sandbox's log directory: `<container>/<attempt>.log`. */
  readonly logPath: string;
  readonly stdin: boolean;
  readonly stdinOnce: boolean;
  readonly tty: boolean;
  readonly resources: LinuxResources;
  readonly security: ContainerSecurity;
  readonly stopSignal: string;
}

export interface ContainerStatus {
  readonly id: ContainerId;
  readonly sandboxId: SandboxId;
  readonly name: string;
  readonly attempt: number;
  readonly state: 'created' | 'running' | 'exited' | 'unknown';
  readonly createdAtMs: number;
  /** 0: not yet. */
  readonly startedAtMs: number;
  readonly finishedAtMs: number;
  readonly exitCode: number;
  /** `Completed`, `Error`, `OOMKilled`, `ContainerCannotRun`, …; '' while it runs. */
  readonly reason: string;
  readonly message: string;
  readonly image: string;
  /** `repo@sha256:…` where the runtime knows it, else the image's id. */
  readonly imageRef: string;
  readonly imageId: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  /** Absolute. */
  readonly logPath: string;
  /** What the runtime applies now, where it says so. */
  readonly resources?: Partial<LinuxResources>;
  /** User that the process runs as, where the runtime says so. */
  readonly user?: { readonly uid: number; readonly gid: number; readonly supplementalGroups: readonly number[] };
  readonly mounts: readonly Mount[];
}

export interface ImageInfo {
  readonly id: string;
  readonly repoTags: readonly string[];
  readonly repoDigests: readonly string[];
  readonly sizeBytes: number;
  readonly user: string;
  readonly pinned: boolean;
}

export interface RegistryAuth {
  readonly username?: string;
  readonly password?: string;
  readonly serverAddress?: string;
  readonly identityToken?: string;
  readonly registryToken?: string;
}

export interface ContainerStats {
  readonly id: ContainerId;
  readonly labels: Readonly<Record<string, string>>;
  readonly timestampMs: number;
  readonly cpuUsageCoreNs: number;
  readonly memoryWorkingSetBytes: number;
  readonly memoryUsageBytes: number;
  readonly memoryRssBytes: number;
  readonly pageFaults: number;
  readonly majorPageFaults: number;
  readonly writableLayerBytes: number;
  readonly writableLayerInodes: number;
}

export interface NetworkInterfaceStats {
  readonly name: string;
  readonly rxBytes: number;
  readonly rxErrors: number;
  readonly txBytes: number;
  readonly txErrors: number;
}

export interface SandboxStats {
  readonly id: SandboxId;
  readonly pod: PodIdentity;
  readonly interfaces: readonly NetworkInterfaceStats[];
  readonly processCount: number;
  readonly containers: readonly ContainerStats[];
}

export interface FilesystemUsage {
  readonly mountpoint: string;
  readonly usedBytes: number;
  readonly inodesUsed: number;
}

export interface TerminalSize {
  readonly width: number;
  readonly height: number;
}

/** The streams of an exec or attach; absent ones are not wanted. Back-pressure is Node's. */
export interface StreamIo {
  readonly stdin?: NodeJS.ReadableStream;
  readonly stdout?: NodeJS.WritableStream;
  /** Absent with a terminal. */
  readonly stderr?: NodeJS.WritableStream;
  readonly tty: boolean;
  /** Sizes of the terminal, as they change. */
  readonly resize?: AsyncIterable<TerminalSize>;
  readonly signal: AbortSignal;
}

export type RuntimeEvent = {
  readonly type: 'created' | 'started' | 'stopped' | 'deleted' | 'sandbox-changed';
  readonly podUid: string;
  readonly containerId: string;
};

export interface RuntimeInfo {
  /** `docker`, `containerd`, … as in `containerID: docker://…`. */
  readonly name: string;
  readonly version: string;
  readonly apiVersion: string;
}

export interface RuntimeCondition {
  /** `RuntimeReady`, `NetworkReady`. */
  readonly type: string;
  readonly ready: boolean;
  readonly reason: string;
  readonly message: string;
}

export interface RuntimeHandler {
  readonly name: string;
  readonly recursiveReadOnlyMounts: boolean;
  readonly userNamespaces: boolean;
}

export interface RuntimeFeatures {
  readonly handlers: readonly RuntimeHandler[];
  /** Containers can have the groups that their pod names, and none of their image's. */
  readonly supplementalGroupsPolicy: boolean;
}

export interface Runtime {
  info(): Promise<RuntimeInfo>;
  conditions(): Promise<readonly RuntimeCondition[]>;
  features(): Promise<RuntimeFeatures>;
  /** `cgroupfs` or `systemd`, where the runtime says so. */
  cgroupDriver(): Promise<'cgroupfs' | 'systemd' | undefined>;
  /** The pods' address range of this node; may come and change at run time. */
  setPodCidr(cidrs: readonly string[]): Promise<void>;

  runSandbox(config: SandboxConfig): Promise<SandboxId>;
  /** Stops the containers in it, frees its network. Does nothing where there is none. */
  stopSandbox(id: SandboxId): Promise<void>;
  removeSandbox(id: SandboxId): Promise<void>;
  sandboxStatus(id: SandboxId): Promise<SandboxStatus>;
  /** Newest first, as the containers. */
  listSandboxes(filter?: { readonly podUid?: string }): Promise<readonly SandboxStatus[]>;

  createContainer(sandbox: SandboxId, sandboxConfig: SandboxConfig, config: ContainerConfig): Promise<ContainerId>;
  startContainer(id: ContainerId): Promise<void>;
  /** Signals, waits up to the grace period, kills. 0: kills at once. */
  stopContainer(id: ContainerId, gracePeriodSeconds: number): Promise<void>;
  removeContainer(id: ContainerId): Promise<void>;
  containerStatus(id: ContainerId): Promise<ContainerStatus>;
  /** One call for many pods: the PLEG's relist. */
  listContainers(filter?: {
    readonly podUid?: string;
    readonly sandboxId?: SandboxId;
  }): Promise<readonly ContainerStatus[]>;
  updateResources(id: ContainerId, resources: LinuxResources): Promise<void>;
  /** After the log file was moved away. */
  reopenLog(id: ContainerId): Promise<void>;
  /** Writes the container's state into an archive; it runs on. 0 s: as long as the runtime takes. */
  checkpoint(id: ContainerId, archive: string, options: { readonly timeoutSeconds: number }): Promise<void>;

  /** Resolves to the exit code. A timeout throws `RuntimeError('timeout')`. */
  execSync(
    id: ContainerId,
    command: readonly string[],
    options: { readonly timeoutMs: number; readonly signal?: AbortSignal; readonly maxOutputBytes?: number },
  ): Promise<{ readonly exitCode: number; readonly stdout: Buffer; readonly stderr: Buffer }>;
  /** Resolves to the exit code when the process has ended and the output is written. */
  exec(id: ContainerId, command: readonly string[], io: StreamIo): Promise<number>;
  attach(id: ContainerId, io: StreamIo): Promise<void>;
  /**
   * A connection to a port of the sandbox's network namespace (its loopback). That nobody listens there is told at once or
   * as the error of the stream.
   */
  portForward(id: SandboxId, port: number, signal: AbortSignal): Promise<NodeJS.ReadWriteStream>;

  listImages(): Promise<readonly ImageInfo[]>;
  imageStatus(reference: string): Promise<ImageInfo | undefined>;
  /** Resolves to the image's id. Progress is for logs. */
  pullImage(
    reference: string,
    auth: RegistryAuth | undefined,
    options: { readonly signal: AbortSignal; readonly onProgress?: (text: string) => void },
  ): Promise<string>;
  removeImage(reference: string): Promise<void>;
  /** Loads a `docker save` archive; resolves to the references in it. */
  loadImages(archive: string): Promise<readonly string[]>;
  imageFilesystems(): Promise<{
    readonly images: readonly FilesystemUsage[];
    readonly containers: readonly FilesystemUsage[];
  }>;

  containerStats(filter?: { readonly podUid?: string }): Promise<readonly ContainerStats[]>;
  sandboxStats(filter?: { readonly podUid?: string }): Promise<readonly SandboxStats[]>;

  /** Calls until the signal aborts; `onDisconnect` says that events may have been lost (relist). */
  events(signal: AbortSignal, onEvent: (event: RuntimeEvent) => void, onDisconnect: () => void): Promise<void>;
  close(): Promise<void>;
}
