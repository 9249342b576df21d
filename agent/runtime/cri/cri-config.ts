/** Translates the runtime boundary's sandbox and container configuration into CRI messages. These functions are pure. */
import type { ContainerConfig, LinuxResources, Mount, SandboxConfig } from '../runtime.ts';
import type { ContainerSecurity, NamespaceOptions, SecurityProfile, SeLinuxOptions } from '../runtime-security.ts';
import { CRI, type Outgoing, STOP_SIGNALS } from './schema.ts';

/** The host kernel files whose content a container does not see, unless its spec has `procMount: Unmasked`. */
const MASKED_PATHS: readonly string[] = [
  '/proc/asound',
  '/proc/acpi',
  '/proc/interrupts',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/timer_list',
  '/proc/timer_stats',
  '/proc/sched_debug',
  '/proc/scsi',
  '/sys/firmware',
  '/sys/devices/virtual/powercap',
];
/** The host kernel files that a container cannot change, unless its spec has `procMount: Unmasked`. */
const READ_ONLY_PATHS: readonly string[] = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];

const int64 = (value: number | undefined): { readonly value: number } | undefined =>
  value === undefined ? undefined : { value };

/** Removes undefined fields, which the wire format cannot represent. */
function withoutUndefined<T extends object>(fields: { readonly [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;
}

function namespaceOptions(options: NamespaceOptions): Outgoing<'NamespaceOption'> {
  return withoutUndefined<Outgoing<'NamespaceOption'>>({
    network: CRI.namespace[options.network],
    pid: CRI.namespace[options.pid],
    ipc: CRI.namespace[options.ipc],
    targetId: options.targetId,
    usernsOptions:
      options.userNamespace === undefined
        ? undefined
        : {
            mode: CRI.namespace.pod,
            uids: [options.userNamespace.uids],
            gids: [options.userNamespace.gids],
          },
  });
}

function profile(value: SecurityProfile | undefined): Outgoing<'SecurityProfile'> | undefined {
  if (value === undefined) return undefined;
  return { profileType: CRI.profile[value.type], localhostRef: value.localhost ?? '' };
}

function seLinux(value: SeLinuxOptions | undefined): Outgoing<'SELinuxOption'> | undefined {
  if (value === undefined) return undefined;
  return { user: value.user ?? '', role: value.role ?? '', type: value.type ?? '', level: value.level ?? '' };
}

/** Returns the configuration of a sandbox, as the requests RunPodSandbox and CreateContainer contain it. */
export function sandboxMessage(config: SandboxConfig): Outgoing<'PodSandboxConfig'> {
  return withoutUndefined<Outgoing<'PodSandboxConfig'>>({
    metadata: config.pod,
    // A pod on the host's network has the node's host name.
    hostname: config.namespaces.network === 'node' ? '' : config.hostname,
    logDirectory: config.logDirectory,
    dnsConfig: config.dns,
    portMappings: config.portMappings.map((mapping) => ({
      ...mapping,
      protocol: CRI.protocol[mapping.protocol],
    })),
    labels: config.labels,
    annotations: config.annotations,
    linux: {
      cgroupParent: config.cgroupParent,
      sysctls: config.sysctls,
      securityContext: withoutUndefined<Outgoing<'LinuxSandboxSecurityContext'>>({
        namespaceOptions: namespaceOptions(config.namespaces),
        selinuxOptions: seLinux(config.seLinux),
        runAsUser: int64(config.runAsUser),
        runAsGroup: int64(config.runAsGroup),
        readonlyRootfs: config.readOnlyRootFilesystem,
        supplementalGroups: config.supplementalGroups,
        privileged: config.privileged,
        seccomp: profile(config.seccomp),
      }),
    },
  });
}

/** Returns the resources of a container, for its creation and for updates. */
export function resourcesMessage(resources: LinuxResources): Outgoing<'LinuxContainerResources'> {
  return {
    cpuPeriod: resources.cpuPeriodUs,
    cpuQuota: resources.cpuQuotaUs,
    cpuShares: resources.cpuShares,
    memoryLimitInBytes: resources.memoryLimitBytes,
    memorySwapLimitInBytes: resources.memorySwapLimitBytes,
    oomScoreAdj: resources.oomScoreAdj,
    cpusetCpus: resources.cpusetCpus,
    cpusetMems: resources.cpusetMems,
    hugepageLimits: resources.hugepageLimits.map(({ pageSize, limitBytes }) => ({ pageSize, limit: limitBytes })),
    unified: resources.unified,
  };
}

function securityMessage(security: ContainerSecurity): Outgoing<'LinuxContainerSecurityContext'> {
  const { maskedPaths } = security;
  return withoutUndefined<Outgoing<'LinuxContainerSecurityContext'>>({
    capabilities: { addCapabilities: security.addCapabilities, dropCapabilities: security.dropCapabilities },
    privileged: security.privileged,
    namespaceOptions: namespaceOptions(security.namespaces),
    selinuxOptions: seLinux(security.seLinux),
    runAsUser: int64(security.runAsUser),
    runAsUsername: security.runAsUserName,
    runAsGroup: int64(security.runAsGroup),
    readonlyRootfs: security.readOnlyRootFilesystem,
    supplementalGroups: security.supplementalGroups,
    supplementalGroupsPolicy: CRI.groupsPolicy[security.supplementalGroupsPolicy],
    noNewPrivs: security.noNewPrivileges,
    maskedPaths: maskedPaths === 'default' ? MASKED_PATHS : maskedPaths === 'none' ? [] : maskedPaths,
    readonlyPaths: maskedPaths === 'none' ? [] : READ_ONLY_PATHS,
    seccomp: profile(security.seccomp),
    apparmor: profile(security.appArmor),
  });
}

function mountMessage(mount: Mount, namespaces: NamespaceOptions): Outgoing<'Mount'> {
  const { userNamespace } = namespaces;
  return withoutUndefined<Outgoing<'Mount'>>({
    containerPath: mount.containerPath,
    hostPath: mount.hostPath,
    readonly: mount.readonly,
    selinuxRelabel: mount.seLinuxRelabel,
    propagation: CRI.propagation[mount.propagation],
    recursiveReadOnly: mount.recursiveReadOnly,
    uidMappings: userNamespace === undefined ? undefined : [userNamespace.uids],
    gidMappings: userNamespace === undefined ? undefined : [userNamespace.gids],
    image: mount.image === undefined ? undefined : { image: mount.image, userSpecifiedImage: mount.image },
    imageSubPath: mount.imageSubPath,
  });
}

/** Returns the configuration of a container in the request CreateContainer. An unknown stop signal is the runtime's default. */
export function containerMessage(config: ContainerConfig): Outgoing<'ContainerConfig'> {
  return {
    metadata: { name: config.name, attempt: config.attempt },
    image: { image: config.image, userSpecifiedImage: config.userImage },
    command: config.command,
    args: config.args,
    workingDir: config.workingDir,
    envs: config.env.map(({ name, value }) => ({ key: name, value: Buffer.from(value) })),
    mounts: config.mounts.map((mount) => mountMessage(mount, config.security.namespaces)),
    devices: config.devices,
    cdiDevices: config.cdiDevices.map((name) => ({ name })),
    labels: config.labels,
    annotations: config.annotations,
    logPath: config.logPath,
    stdin: config.stdin,
    stdinOnce: config.stdinOnce,
    tty: config.tty,
    linux: { resources: resourcesMessage(config.resources), securityContext: securityMessage(config.security) },
    stopSignal: Math.max(
      0,
      STOP_SIGNALS.indexOf(
        config.stopSignal.replace(
          /^SIGRT(MIN|MAX)(PLUS|MINUS)/,
          (_all, base: string, sign: string) => `SIGRT${base}${sign === 'PLUS' ? '+' : '-'}`,
        ),
      ),
    ),
  };
}
