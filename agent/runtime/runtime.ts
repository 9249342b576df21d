/**
 * Defines the container runtime boundary, modelled on CRI v1: pod sandboxes, containers, images, stats and streams.
 *
 * `cri/` implements it as a thin adapter over gRPC, `docker/` over dockerode, and `test/fakes/fake-runtime.ts` in memory.
 * One contract suite tests all three.
 */
import type { CniPlaces } from '../base/model/cni-places.ts';
import type { ContainerId, PodIdentity, SandboxId } from './runtime-identity.ts';
import type { ContainerSecurity, NamespaceOptions, SecurityProfile, SeLinuxOptions } from './runtime-security.ts';
import type { ContainerStats } from './runtime-stats.ts';

/** The failures that callers distinguish. */
export type RuntimeErrorCode =
  | 'not-found'
  | 'already-exists'
  | 'image-not-found'
  /** The registry rejected the credentials. */
  | 'unauthorized'
  /** The request cannot be fulfilled, for example because the process of a container cannot be started. */
  | 'invalid'
  | 'unavailable'
  | 'unsupported'
  | 'timeout'
  | 'unknown';

/** The error of every operation of the boundary. */
export class RuntimeError extends Error {
  readonly code: RuntimeErrorCode;
  constructor(code: RuntimeErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'RuntimeError';
    this.code = code;
  }
}

/**
 * A port of a container, and the port of the host that leads to it. A `hostPort` of 0 means no port of the host. An empty
 * `hostIp` stands for all addresses.
 */
export interface PortMapping {
  readonly protocol: 'TCP' | 'UDP' | 'SCTP';
  readonly containerPort: number;
  readonly hostPort: number;
  readonly hostIp: string;
}

/** The complete configuration of a pod sandbox. */
export interface SandboxConfig {
  readonly pod: PodIdentity;
  readonly hostname: string;
  /** `/var/log/pods/<ns>_<name>_<uid>`. The directory exists. */
  readonly logDirectory: string;
  readonly dns:
    | { readonly servers: readonly string[]; readonly searches: readonly string[]; readonly options: readonly string[] }
    | undefined;
  readonly portMappings: readonly PortMapping[];
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  /** The cgroup above that of the sandbox. If it is empty, the runtime uses its own default. */
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
  /** The handler of the RuntimeClass; empty for the default. */
  readonly runtimeHandler: string;
}

/** A sandbox as the runtime has it. */
export interface SandboxStatus {
  readonly id: SandboxId;
  readonly pod: PodIdentity;
  readonly state: 'ready' | 'not-ready';
  readonly createdAtMs: number;
  /** The first address is the primary one. Empty for pods on the host's network. */
  readonly ips: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly networkMode: 'pod' | 'node';
  readonly runtimeHandler: string;
}

/** A bind mount of a container, or an image that is mounted. */
export interface Mount {
  readonly containerPath: string;
  /** Empty if `image` is set. */
  readonly hostPath: string;
  readonly readonly: boolean;
  readonly recursiveReadOnly: boolean;
  readonly propagation: 'private' | 'host-to-container' | 'bidirectional';
  readonly seLinuxRelabel: boolean;
  /** The image of an image volume, as a reference that the runtime resolves. */
  readonly image?: string;
  readonly imageSubPath?: string;
}

/** A device of the host that a container gets. */
export interface Device {
  readonly containerPath: string;
  readonly hostPath: string;
  /** A combination of `r`, `w` and `m`. */
  readonly permissions: string;
}

/** The limits of a container in the units of the kernel. */
export interface LinuxResources {
  readonly cpuPeriodUs: number;
  /** 0 means no quota. */
  readonly cpuQuotaUs: number;
  readonly cpuShares: number;
  /** 0 means no limit. */
  readonly memoryLimitBytes: number;
  readonly memorySwapLimitBytes: number;
  readonly oomScoreAdj: number;
  readonly cpusetCpus: string;
  readonly cpusetMems: string;
  readonly hugepageLimits: readonly { readonly pageSize: string; readonly limitBytes: number }[];
  /** Additional cgroup v2 settings, by file name. */
  readonly unified: Readonly<Record<string, string>>;
  /** 0 means no limit. */
  readonly pidsLimit: number;
}

/** The complete configuration of a container. */
export interface ContainerConfig {
  readonly name: string;
  /** The kind of the container, for metrics. The runtime does not receive it. */
  readonly kind: 'regular' | 'init' | 'ephemeral';
  readonly attempt: number;
  /** The id of an image on the node, or a reference. */
  readonly image: string;
  /** The image as the user specified it. Container statuses show it. */
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
  /** The path of the log file, relative to the log directory of the sandbox: `<container>/<attempt>.log`. */
  readonly logPath: string;
  readonly stdin: boolean;
  readonly stdinOnce: boolean;
  readonly tty: boolean;
  readonly resources: LinuxResources;
  readonly security: ContainerSecurity;
  readonly stopSignal: string;
}

/** A container as the runtime has it. Times are in milliseconds since 1970. */
export interface ContainerStatus {
  readonly id: ContainerId;
  readonly sandboxId: SandboxId;
  readonly name: string;
  readonly attempt: number;
  readonly state: 'created' | 'running' | 'exited' | 'unknown';
  readonly createdAtMs: number;
  /** 0 if the container has not started. */
  readonly startedAtMs: number;
  readonly finishedAtMs: number;
  readonly exitCode: number;
  /** `Completed`, `Error`, `OOMKilled`, `ContainerCannotRun` and others; empty while the container runs. */
  readonly reason: string;
  readonly message: string;
  readonly image: string;
  /** `repo@sha256:…` if the runtime knows the digest, else the image id. */
  readonly imageRef: string;
  readonly imageId: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  /** The absolute path of the log file. */
  readonly logPath: string;
  /** The resources that the runtime currently applies, if it reports them. */
  readonly resources?: Partial<LinuxResources>;
  /** The user that the process runs as, if the runtime reports it. */
  readonly user?: { readonly uid: number; readonly gid: number; readonly supplementalGroups: readonly number[] };
  readonly mounts: readonly Mount[];
}

/** An image of the node. `user` is the user of its configuration; pinned images are not removed. */
export interface ImageInfo {
  readonly id: string;
  readonly repoTags: readonly string[];
  readonly repoDigests: readonly string[];
  readonly sizeBytes: number;
  readonly user: string;
  readonly pinned: boolean;
}

/** Credentials for one registry. They are never logged. */
export interface RegistryAuth {
  readonly username?: string;
  readonly password?: string;
  readonly serverAddress?: string;
  readonly identityToken?: string;
  readonly registryToken?: string;
}

/** What images or containers use of a filesystem. */
export interface FilesystemUsage {
  readonly mountpoint: string;
  readonly usedBytes: number;
  readonly inodesUsed: number;
}

/** The size of a terminal in characters. */
export interface TerminalSize {
  readonly width: number;
  readonly height: number;
}

/** The streams of an exec or attach. A stream that is absent is not connected. Node's streams provide back-pressure. */
export interface StreamIo {
  readonly stdin?: NodeJS.ReadableStream;
  readonly stdout?: NodeJS.WritableStream;
  /** Absent with a terminal. */
  readonly stderr?: NodeJS.WritableStream;
  readonly tty: boolean;
  /** The sizes of the terminal, in the order in which they change. */
  readonly resize?: AsyncIterable<TerminalSize>;
  readonly signal: AbortSignal;
}

/** A change that the runtime reports. Events can be lost. */
export type RuntimeEvent = {
  readonly type: 'created' | 'started' | 'stopped' | 'deleted' | 'sandbox-changed';
  readonly podUid: string;
  readonly containerId: string;
};

/** The name and the versions of the runtime. */
export interface RuntimeInfo {
  /** `docker`, `containerd` or another runtime, as in `containerID: docker://…`. */
  readonly name: string;
  readonly version: string;
  readonly apiVersion: string;
}

/** A condition of the runtime, as CRI's Status has it. */
export interface RuntimeCondition {
  /** The type of the condition. The agent reads `RuntimeReady` and `NetworkReady`. */
  readonly type: string;
  readonly ready: boolean;
  readonly reason: string;
  readonly message: string;
}

interface RuntimeHandler {
  readonly name: string;
  readonly recursiveReadOnlyMounts: boolean;
  readonly userNamespaces: boolean;
}

/** The optional features that the runtime has. */
export interface RuntimeFeatures {
  readonly handlers: readonly RuntimeHandler[];
  /**
   * The runtime supports `supplementalGroupsPolicy: Strict`: containers have the groups that their pod names, without
   * those of the image.
   */
  readonly supplementalGroupsPolicy: boolean;
}

/** The settings of the pod network that the agent passes on. */
export interface PodNetworkSettings {
  /** The largest packet of pods, if it is not that of the host. Runtimes with CNI plugins get it by their configuration. */
  readonly mtu?: number | undefined;
}

/** The result of a command. `outputBytes` counts all bytes that the runtime sent; `stdout` and `stderr` may have fewer. */
interface CommandResult {
  readonly exitCode: number;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly outputBytes: number;
}

/** The boundary. Operations throw `RuntimeError`s, and are idempotent where CRI requires it. */
export interface Runtime {
  info(): Promise<RuntimeInfo>;
  conditions(): Promise<readonly RuntimeCondition[]>;
  features(): Promise<RuntimeFeatures>;
  /** Returns `cgroupfs` or `systemd`, if the runtime reports its driver. */
  cgroupDriver(): Promise<'cgroupfs' | 'systemd' | undefined>;
  /** Returns the directories of the runtime's CNI plugins and their configuration; `undefined` if it uses none. */
  cniPlaces(): Promise<CniPlaces | undefined>;
  /** Sets the pod CIDRs of this node. They may arrive and change while the agent runs. */
  setPodCidr(cidrs: readonly string[], settings?: PodNetworkSettings): Promise<void>;

  runSandbox(config: SandboxConfig): Promise<SandboxId>;
  /** Stops the containers in the sandbox and releases its network. Does nothing if the sandbox does not exist. */
  stopSandbox(id: SandboxId): Promise<void>;
  removeSandbox(id: SandboxId): Promise<void>;
  sandboxStatus(id: SandboxId): Promise<SandboxStatus>;
  /** Resolves to the process that holds the network namespace of a sandbox; 0 if the runtime reports none. */
  sandboxProcess(id: SandboxId): Promise<number>;
  /** Returns the newest first, like `listContainers`. */
  listSandboxes(filter?: { readonly podUid?: string }): Promise<readonly SandboxStatus[]>;

  createContainer(sandbox: SandboxId, sandboxConfig: SandboxConfig, config: ContainerConfig): Promise<ContainerId>;
  startContainer(id: ContainerId): Promise<void>;
  /** Sends the stop signal, waits up to the grace period and kills the container. A grace period of 0 kills at once. */
  stopContainer(id: ContainerId, gracePeriodSeconds: number): Promise<void>;
  removeContainer(id: ContainerId): Promise<void>;
  containerStatus(id: ContainerId): Promise<ContainerStatus>;
  /** Lists containers of many pods in one call. */
  listContainers(filter?: {
    readonly podUid?: string;
    readonly sandboxId?: SandboxId;
  }): Promise<readonly ContainerStatus[]>;
  updateResources(id: ContainerId, resources: LinuxResources): Promise<void>;
  /** Called after the log file was renamed. The runtime creates a new file. */
  reopenLog(id: ContainerId): Promise<void>;
  /**
   * Writes the container's state into an archive while the container keeps running. A timeout of 0 means the runtime's
   * own timeout. Throws `RuntimeError('unsupported')` if the runtime cannot do it.
   */
  checkpoint(id: ContainerId, archive: string, options: { readonly timeoutSeconds: number }): Promise<void>;

  /**
   * Resolves to the exit code, and at most `maxOutputBytes` of each stream. Throws `RuntimeError('timeout')` after the timeout;
   * a timeout of 0 means none.
   */
  execSync(
    id: ContainerId,
    command: readonly string[],
    options: { readonly timeoutMs: number; readonly signal?: AbortSignal; readonly maxOutputBytes?: number },
  ): Promise<CommandResult>;
  /** Resolves to the exit code when the process has exited and its output is written. */
  exec(id: ContainerId, command: readonly string[], io: StreamIo): Promise<number>;
  attach(id: ContainerId, io: StreamIo): Promise<void>;
  /**
   * Opens a connection to a port on loopback in the sandbox's network namespace. If no process listens there, the call
   * throws, or the stream fails with an error.
   */
  portForward(id: SandboxId, port: number, signal: AbortSignal): Promise<NodeJS.ReadWriteStream>;

  listImages(): Promise<readonly ImageInfo[]>;
  /** Resolves to `undefined` if the runtime does not have the image. */
  imageStatus(reference: string): Promise<ImageInfo | undefined>;
  /** Resolves to the image's id. Callers only log the progress. */
  pullImage(
    reference: string,
    auth: RegistryAuth | undefined,
    options: { readonly signal: AbortSignal; readonly onProgress?: (text: string) => void },
  ): Promise<string>;
  removeImage(reference: string): Promise<void>;
  /** Loads a `docker save` archive. Resolves to the references in it. */
  loadImages(archive: string): Promise<readonly string[]>;
  imageFilesystems(): Promise<{
    readonly images: readonly FilesystemUsage[];
    readonly containers: readonly FilesystemUsage[];
  }>;

  containerStats(filter?: { readonly podUid?: string }): Promise<readonly ContainerStats[]>;

  /**
   * Calls back until the signal aborts. `onDisconnect` means that events may have been lost, and the caller must
   * relist.
   */
  events(signal: AbortSignal, onEvent: (event: RuntimeEvent) => void, onDisconnect: () => void): Promise<void>;
  close(): Promise<void>;
}
