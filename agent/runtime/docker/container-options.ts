/**
 * Translates the runtime boundary's sandbox and container configuration into the options of the Docker Engine's create
 * calls. Pure.
 */
import type Docker from 'dockerode';
import { RuntimeError, type ContainerConfig, type LinuxResources, type Mount, type SandboxConfig } from '../runtime.ts';
import type { ContainerSecurity, SecurityProfile } from '../runtime-security.ts';

/** The capabilities of the host and the engine. */
export interface EngineFacts {
  readonly swapLimit: boolean;
  /** The lowest oom_score_adj that containers can have. A negative value needs CAP_SYS_RESOURCE. */
  readonly lowestOomScoreAdj: number;
  readonly recursiveReadOnly: boolean;
  /**
   * The engine is Podman's implementation of Docker's API. In Podman a container that joins a network namespace must also join
   * the UTS namespace to share the host name, and a seccomp profile is named by its path. Docker rejects the first and takes
   * the profile inline.
   */
  readonly isPodman: boolean;
  readonly seLinux: boolean;
}

/**
 * The log of the engine, which is only a buffer from which the log writer reads. It has two files, so that a rotation loses no
 * unread output.
 */
const LOG_CONFIG = { Type: 'json-file', Config: { 'max-size': '16m', 'max-file': '2' } };

/** The CPU shares and the OOM score of a pause container, as the kubelet sets them. */
const SANDBOX_CPU_SHARES = 2;
const SANDBOX_OOM_SCORE_ADJ = -998;

interface SandboxOptions {
  readonly image: string;
  /** The name of the node's pod network. Absent for pods that use the host's network. */
  readonly network: string | undefined;
  readonly labels: Record<string, string>;
  readonly name: string;
}

/**
 * Returns the options of a sandbox. Throws `RuntimeError` `unsupported` for a user namespace of the pod.
 */
export function sandboxCreateOptions(
  config: SandboxConfig,
  options: SandboxOptions,
  facts: EngineFacts,
): Docker.ContainerCreateOptions {
  const { namespaces } = config;
  if (namespaces.userNamespace !== undefined) {
    throw new RuntimeError('unsupported', 'user namespaces per pod are not supported by the Docker runtime');
  }
  const onNode = namespaces.network === 'node';
  const ports: Record<string, object> = {};
  const bindings: Record<string, { HostIp: string; HostPort: string }[]> = {};
  for (const port of onNode ? [] : config.portMappings) {
    if (port.hostPort === 0) continue;
    const key = `${port.containerPort}/${port.protocol.toLowerCase()}`;
    ports[key] = {};
    (bindings[key] ??= []).push({ HostIp: port.hostIp, HostPort: String(port.hostPort) });
  }
  return {
    name: options.name,
    Image: options.image,
    ...(onNode ? {} : { Hostname: config.hostname }),
    Labels: options.labels,
    ExposedPorts: ports,
    ...userOption(config.runAsUser, config.runAsGroup),
    HostConfig: {
      NetworkMode: options.network ?? 'host',
      IpcMode: namespaces.ipc === 'node' ? 'host' : 'shareable',
      ...(namespaces.pid === 'node' ? { PidMode: 'host' } : {}),
      ...(onNode ? { UTSMode: 'host' } : {}),
      PortBindings: bindings,
      CgroupParent: config.cgroupParent,
      Sysctls: { ...config.sysctls },
      GroupAdd: config.supplementalGroups.map(String),
      Privileged: config.privileged,
      ReadonlyRootfs: config.readOnlyRootFilesystem,
      SecurityOpt: ['no-new-privileges', ...seLinuxOptions(config.seLinux)],
      CpuShares: SANDBOX_CPU_SHARES,
      OomScoreAdj: Math.max(SANDBOX_OOM_SCORE_ADJ, facts.lowestOomScoreAdj),
      LogConfig: { Type: 'none', Config: {} },
      ...(config.runtimeHandler === '' ? {} : { Runtime: config.runtimeHandler }),
    },
  };
}

interface ContainerOptions {
  readonly sandboxId: string;
  readonly labels: Record<string, string>;
  readonly name: string;
  /** The contents of a localhost seccomp profile for Docker; the path of the profile for Podman. */
  readonly seccompProfile: string | undefined;
  /** The path of a prepared resolv.conf. If absent, the engine writes its own. */
  readonly resolvConf: string | undefined;
}

/** The maximum number of characters of a container that the engine returns with each list of all containers. */
const MAX_LISTED_CHARACTERS = 128 * 1024;
/** The number of characters of a mount in a list beside its paths. */
const MOUNT_CHARACTERS = 100;

/** Throws for a container by which lists of all containers would become too large. */
function checkListed({ name, command, args, mounts }: ContainerConfig): void {
  const length = [...command, ...args].reduce((sum, text) => sum + text.length + 1, 0);
  const paths = mounts.reduce((sum, mount) => sum + mount.containerPath.length + mount.hostPath.length, 0);
  if (length + paths + MOUNT_CHARACTERS * mounts.length > MAX_LISTED_CHARACTERS)
    throw new RuntimeError(
      'invalid',
      `the command, arguments and mounts of container ${name} have more than ${MAX_LISTED_CHARACTERS} characters, which Docker would return with every list of containers`,
    );
}

/**
 * Returns the options of one container of the sandbox. Throws a `RuntimeError`: `invalid` if its command, arguments and mounts
 * are too long together, `unsupported` for a recursive read-only mount that the engine does not have.
 */
export function containerCreateOptions(
  sandbox: SandboxConfig,
  config: ContainerConfig,
  options: ContainerOptions,
  facts: EngineFacts,
): Docker.ContainerCreateOptions {
  checkListed(config);
  const { security } = config;
  const mounts = config.mounts.map((mount) => mountOption(mount, facts));
  if (options.resolvConf !== undefined && !config.mounts.some((mount) => mount.containerPath === '/etc/resolv.conf')) {
    mounts.push({
      Type: 'bind',
      Source: options.resolvConf,
      Target: '/etc/resolv.conf',
      ReadOnly: security.readOnlyRootFilesystem,
    });
  }
  return {
    name: options.name,
    Image: config.image,
    ...(config.command.length === 0 ? {} : { Entrypoint: [...config.command] }),
    ...(config.args.length === 0 ? {} : { Cmd: [...config.args] }),
    Env: config.env.map((entry) => `${entry.name}=${entry.value}`),
    WorkingDir: config.workingDir,
    Labels: options.labels,
    OpenStdin: config.stdin,
    StdinOnce: config.stdinOnce,
    Tty: config.tty,
    AttachStdin: false,
    AttachStdout: false,
    AttachStderr: false,
    ...(config.stopSignal === '' ? {} : { StopSignal: config.stopSignal }),
    Healthcheck: { Test: ['NONE'] },
    ...userOption(security.runAsUserName ?? security.runAsUser, security.runAsGroup),
    HostConfig: {
      NetworkMode: `container:${options.sandboxId}`,
      ...(facts.isPodman ? { UTSMode: `container:${options.sandboxId}` } : {}),
      IpcMode: security.namespaces.ipc === 'node' ? 'host' : `container:${options.sandboxId}`,
      ...pidMode(security, options.sandboxId),
      ...(sandbox.namespaces.network === 'node' ? { UTSMode: 'host' } : {}),
      CgroupParent: sandbox.cgroupParent,
      Mounts: mounts,
      Devices: config.devices.map((device) => ({
        PathOnHost: device.hostPath,
        PathInContainer: device.containerPath,
        CgroupPermissions: device.permissions,
      })),
      // The Docker Engine supports CDI devices from version 25. Older versions reject the container with an error.
      ...(config.cdiDevices.length === 0
        ? {}
        : { DeviceRequests: [{ Driver: 'cdi', DeviceIDs: [...config.cdiDevices] }] }),
      CapAdd: [...security.addCapabilities],
      CapDrop: [...security.dropCapabilities],
      Privileged: security.privileged,
      ReadonlyRootfs: security.readOnlyRootFilesystem,
      GroupAdd: security.supplementalGroups.map(String),
      SecurityOpt: securityOptions(security, options.seccompProfile),
      ...maskedPaths(security),
      ...resourceOptions(config.resources, facts),
      LogConfig: LOG_CONFIG,
      ...(sandbox.runtimeHandler === '' ? {} : { Runtime: sandbox.runtimeHandler }),
    },
  };
}

/** Returns the limits of a container, for its creation and for updates. */
export function resourceOptions(resources: LinuxResources, facts: EngineFacts): Docker.HostConfig {
  // The engine's swap limit is the sum of memory and swap, while cgroup v2 limits swap alone.
  const swapMax = Number(resources.unified['memory.swap.max'] ?? 0);
  const swap =
    resources.memorySwapLimitBytes !== 0 ? resources.memorySwapLimitBytes : resources.memoryLimitBytes + swapMax;
  return {
    CpuShares: resources.cpuShares,
    CpuPeriod: resources.cpuQuotaUs === 0 ? 0 : resources.cpuPeriodUs,
    CpuQuota: resources.cpuQuotaUs,
    Memory: resources.memoryLimitBytes,
    ...(facts.swapLimit && resources.memoryLimitBytes > 0 ? { MemorySwap: swap } : {}),
    OomScoreAdj: Math.max(resources.oomScoreAdj, facts.lowestOomScoreAdj),
    CpusetCpus: resources.cpusetCpus,
    CpusetMems: resources.cpusetMems,
    ...(resources.pidsLimit > 0 ? { PidsLimit: resources.pidsLimit } : {}),
  };
}

function userOption(user: number | string | undefined, gid: number | undefined): { User?: string } {
  if (user === undefined) return {};
  return { User: gid === undefined ? String(user) : `${user}:${gid}` };
}

function pidMode(security: ContainerSecurity, sandboxId: string): { PidMode?: string } {
  switch (security.namespaces.pid) {
    case 'node':
      return { PidMode: 'host' };
    case 'pod':
      return { PidMode: `container:${sandboxId}` };
    case 'target':
      return { PidMode: `container:${security.namespaces.targetId ?? ''}` };
    case 'container':
      return {};
  }
}

function mountOption(mount: Mount, facts: EngineFacts): Docker.MountSettings {
  if (mount.recursiveReadOnly && !facts.recursiveReadOnly) {
    throw new RuntimeError(
      'unsupported',
      'recursive read-only mounts are not supported by this version of the Docker Engine',
    );
  }
  const propagation = { private: 'rprivate', 'host-to-container': 'rslave', bidirectional: 'rshared' } as const;
  // Private is the engine's default propagation. The engine rejects an explicit `private` for a directory that contains the
  // engine's own data, such as `/`.
  const isDefault = mount.propagation === 'private' && !mount.recursiveReadOnly;
  const bindOptions = {
    Propagation: propagation[mount.propagation],
    ...(mount.recursiveReadOnly ? { ReadOnlyForceRecursive: true } : {}),
  };
  return {
    Type: 'bind',
    Source: mount.hostPath,
    Target: mount.containerPath,
    ReadOnly: mount.readonly,
    ...(isDefault ? {} : { BindOptions: bindOptions }),
  };
}

function securityOptions(security: ContainerSecurity, seccompProfile: string | undefined): string[] {
  const options: string[] = [];
  if (security.noNewPrivileges) options.push('no-new-privileges');
  if (security.seccomp.type === 'Unconfined') options.push('seccomp=unconfined');
  if (security.seccomp.type === 'Localhost') options.push(`seccomp=${seccompProfile ?? ''}`);
  const appArmor = appArmorOption(security.appArmor);
  if (appArmor !== undefined) options.push(appArmor);
  return [...options, ...seLinuxOptions(security.seLinux)];
}

function appArmorOption(profile: SecurityProfile | undefined): string | undefined {
  if (profile?.type === 'Unconfined') return 'apparmor=unconfined';
  return profile?.type === 'Localhost' ? `apparmor=${profile.localhost ?? ''}` : undefined;
}

function seLinuxOptions(options: SandboxConfig['seLinux']): string[] {
  if (options === undefined) return [];
  return (['user', 'role', 'type', 'level'] as const).flatMap((key) =>
    options[key] === undefined ? [] : [`label=${key}:${options[key]}`],
  );
}

function maskedPaths(security: ContainerSecurity): { MaskedPaths?: string[]; ReadonlyPaths?: string[] } {
  if (security.maskedPaths === 'default') return {};
  if (security.maskedPaths === 'none') return { MaskedPaths: [], ReadonlyPaths: [] };
  return { MaskedPaths: [...security.maskedPaths] };
}
