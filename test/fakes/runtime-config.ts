/**
 * Builds complete configurations of sandboxes and containers for the runtime interface. A test states only the fields that it
 * is about.
 */
import type { ContainerConfig, LinuxResources, SandboxConfig } from '../../agent/runtime/runtime.ts';
import type { ContainerSecurity, NamespaceOptions } from '../../agent/runtime/runtime-security.ts';

/** The namespaces of a pod that shares none with the host. */
export const ownNamespaces: NamespaceOptions = { network: 'pod', pid: 'container', ipc: 'pod' };

/** The resources of a container without requests and limits. */
export const noLimits: LinuxResources = {
  cpuPeriodUs: 100_000,
  cpuQuotaUs: 0,
  cpuShares: 2,
  memoryLimitBytes: 0,
  memorySwapLimitBytes: 0,
  oomScoreAdj: 0,
  cpusetCpus: '',
  cpusetMems: '',
  hugepageLimits: [],
  unified: {},
  pidsLimit: 0,
};

/** The settings of a container without a security context. */
export const defaultSecurity: ContainerSecurity = {
  addCapabilities: [],
  dropCapabilities: [],
  privileged: false,
  namespaces: ownNamespaces,
  supplementalGroups: [],
  supplementalGroupsPolicy: 'Merge',
  readOnlyRootFilesystem: false,
  noNewPrivileges: false,
  maskedPaths: 'default',
  seccomp: { type: 'RuntimeDefault' },
};

/** Returns the configuration of the sandbox of pod `shop/web` with the changes. */
export function sandboxConfig(changes: Partial<SandboxConfig> = {}): SandboxConfig {
  return {
    pod: { name: 'web', namespace: 'shop', uid: 'u1', attempt: 0 },
    hostname: 'web',
    logDirectory: '/logs',
    dns: undefined,
    portMappings: [],
    labels: {},
    annotations: {},
    cgroupParent: '',
    sysctls: {},
    namespaces: ownNamespaces,
    supplementalGroups: [],
    privileged: false,
    readOnlyRootFilesystem: false,
    seccomp: { type: 'RuntimeDefault' },
    runtimeHandler: '',
    ...changes,
  };
}

/** Returns the configuration of a container `main` without mounts and devices, with the changes. */
export function containerConfig(changes: Partial<ContainerConfig> = {}): ContainerConfig {
  return {
    name: 'main',
    kind: 'regular',
    attempt: 0,
    image: 'sha256:1',
    userImage: 'web:1',
    command: [],
    args: [],
    workingDir: '',
    env: [],
    mounts: [],
    devices: [],
    cdiDevices: [],
    labels: {},
    annotations: {},
    logPath: 'main/0.log',
    stdin: false,
    stdinOnce: false,
    tty: false,
    resources: noLimits,
    security: defaultSecurity,
    stopSignal: '',
    ...changes,
  };
}
