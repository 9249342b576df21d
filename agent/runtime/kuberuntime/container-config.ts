/**
 * Builds the runtime's configuration of a sandbox and of its containers, from the pod, the node and the mounted volumes. Writes
 * the files that a container sees of its own pod (`/etc/hosts`, the termination log).
 */
import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { Container, Pod } from '../../base/model/pod.ts';
import type { ReferencedObjects } from '../../base/model/referenced-objects.ts';
import type { ContainerVolumes, PreparedMounts } from '../container-volumes.ts';
import { inDirectory } from '../../base/files/beneath.ts';
import { makePodLogFolder } from '../logs/log-files.ts';
import { listedMetadata } from './listed-metadata.ts';
import type { DeviceRunOptions } from './device-options.ts';
import type { ContainerConfig, ImageInfo, Mount, PortMapping, SandboxConfig } from '../runtime.ts';
import type { ContainerId } from '../runtime-identity.ts';
import { type DnsSettings, type DnsWarning, hostDns, podDns, podHostname } from './dns.ts';
import { fieldValue, resourceValue } from './downward-api.ts';
import { ContainerConfigError, type ServiceLister, containerEnvironment, expandAll } from './environment.ts';
import { writeEtcHosts } from './etc-hosts.ts';
import { HASH_ANNOTATION } from './pod-actions.ts';
import { REQUESTS_ANNOTATION, restartingRequests } from './resize.ts';
import { containerHash, type ContainerKind } from './pod-containers.ts';
import { linuxResources, type ResourceFacts } from './resources.ts';
import {
  containerSecurity,
  namespaceOptions,
  seccompProfile,
  type SecuritySettings,
  verifyNonRoot,
} from './security.ts';
import type { UserNamespaces } from './user-namespaces.ts';

/** The annotation from which a restarted agent knows where the termination message is. */
export const TERMINATION_PATH_ANNOTATION = 'io.kubernetes.container.terminationMessagePath';
/** The annotation with the termination message policy. */
export const TERMINATION_POLICY_ANNOTATION = 'io.kubernetes.container.terminationMessagePolicy';
const GRACE_ANNOTATION = 'io.kubernetes.pod.terminationGracePeriod';
const PRE_STOP_ANNOTATION = 'io.kubernetes.container.preStopHandler';
const RESTART_COUNT_ANNOTATION = 'io.kubernetes.container.restartCount';

interface ConfigSettings {
  readonly rootDirectory: string;
  /** The directory of all container logs, such as `/var/log/pods`. */
  readonly podLogsDirectory: string;
  readonly dns: DnsSettings;
  readonly security: SecuritySettings;
  /** Whether variables may come from files (feature gate `EnvFiles`). */
  readonly envFiles: boolean;
  readonly resources: () => ResourceFacts;
  readonly cgroupParent: (pod: Pod) => string;
  /** Resolves to the runtime handler of the pod's RuntimeClass; empty without a class. Throws if the class does not exist. */
  readonly runtimeHandler: (pod: Pod) => Promise<string>;
}

/** What configurations are built from, besides the pod. */
export interface ConfigDeps {
  readonly settings: ConfigSettings;
  readonly objects: ReferencedObjects;
  readonly services: ServiceLister;
  readonly volumes: ContainerVolumes;
  readonly userNamespaces: Pick<UserNamespaces, 'mapping'>;
  readonly hostIps: () => readonly string[];
  readonly allocatable: () => Readonly<Record<string, string>>;
  /** Resolves to the container options of device plugins and DRA drivers. */
  readonly devices?: (pod: Pod, container: Container) => Promise<DeviceRunOptions>;
}

/** Returns the directory of the logs of a pod, with the kubelet's name. */
export function podLogDirectory(settings: Pick<ConfigSettings, 'podLogsDirectory'>, pod: Pod): string {
  return join(settings.podLogsDirectory, `${pod.metadata.namespace}_${pod.metadata.name}_${pod.metadata.uid}`);
}

function podLabels(pod: Pod): Record<string, string> {
  return {
    'io.kubernetes.pod.name': pod.metadata.name,
    'io.kubernetes.pod.namespace': pod.metadata.namespace,
    'io.kubernetes.pod.uid': pod.metadata.uid,
  };
}

/** Creates the log directory and returns the configuration. Warnings about DNS go to `warn`. */
export async function sandboxConfig(
  pod: Pod,
  attempt: number,
  deps: ConfigDeps,
  { runtimeHandler, warn }: { readonly runtimeHandler: string; readonly warn: DnsWarning | undefined },
): Promise<SandboxConfig> {
  const { settings } = deps;
  const context = pod.spec.securityContext;
  const logDirectory = podLogDirectory(settings, pod);
  await makePodLogFolder(logDirectory);
  const { labels, annotations } = listedMetadata(pod);
  return {
    pod: { name: pod.metadata.name, namespace: pod.metadata.namespace, uid: pod.metadata.uid, attempt },
    hostname: podHostname(pod, settings.dns.clusterDomain).hostname,
    logDirectory,
    dns: podDns(pod, settings.dns, await hostDns(settings.dns), warn),
    portMappings: [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].flatMap(portMappings),
    labels: { ...labels, ...podLabels(pod) },
    annotations,
    cgroupParent: settings.cgroupParent(pod),
    sysctls: Object.fromEntries((context?.sysctls ?? []).map(({ name = '', value = '' }) => [name, value])),
    namespaces: namespaceOptions(pod, { userNamespace: await deps.userNamespaces.mapping(pod) }),
    ...(context?.runAsUser === undefined ? {} : { runAsUser: context.runAsUser }),
    ...(context?.runAsGroup === undefined ? {} : { runAsGroup: context.runAsGroup }),
    supplementalGroups: [
      ...(context?.supplementalGroups ?? []),
      ...(context?.fsGroup === undefined ? [] : [context.fsGroup]),
    ],
    privileged: [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].some(
      (container) => container.securityContext?.privileged === true,
    ),
    readOnlyRootFilesystem: false,
    seccomp: seccompProfile(context?.seccompProfile, undefined, { ...settings.security, seccompDefault: true }),
    runtimeHandler,
  };
}

function portMappings(container: Container): PortMapping[] {
  return (container.ports ?? []).map((port) => ({
    protocol: (port.protocol ?? 'TCP') as PortMapping['protocol'],
    containerPort: port.containerPort ?? 0,
    hostPort: port.hostPort ?? 0,
    hostIp: port.hostIP ?? '',
  }));
}

interface ContainerRequest {
  readonly pod: Pod;
  readonly container: Container;
  readonly kind: ContainerKind;
  readonly attempt: number;
  /** The image's id. */
  readonly image: string;
  readonly imageInfo: ImageInfo | undefined;
  readonly podIps: readonly string[];
  /** The container that an ephemeral container targets. */
  readonly target?: ContainerId;
  /** The ids of the images that the container mounts, by their references. */
  readonly volumeImages: ReadonlyMap<string, string>;
}

/**
 * Builds the complete configuration of a container. Writes its `/etc/hosts`, unless a volume is mounted there, and the file of
 * its termination message. Throws `ContainerConfigError` if the specification refers to something that is missing or forbidden.
 */
export async function containerConfig(request: ContainerRequest, deps: ConfigDeps): Promise<ContainerConfig> {
  const { pod, container, attempt } = request;
  verifyNonRoot(pod, container, request.imageInfo);
  const facts = { hostIps: deps.hostIps(), podIps: request.podIps };
  const env = await containerEnvironment(pod, container, {
    objects: deps.objects,
    services: deps.services,
    fieldValue: (of, path) => fieldValue(of, path, facts),
    resourceValue: (whole, of, resource, divisor) =>
      resourceValue(whole, of, { resource, divisor }, deps.allocatable()),
    fileText: deps.settings.envFiles ? (of, volume, path) => deps.volumes.fileText(of, volume, path) : undefined,
  });
  const lookup = (name: string): string | undefined => env.get(name);
  const prepared = await preparedMounts(request, env, deps);
  const plugged = await pluggedDevices(request, deps);
  const mounts = [...prepared.mounts, ...(plugged?.mounts ?? []).map(pluginMount)];
  if (!mounts.some((mount) => mount.containerPath === '/etc/hosts'))
    mounts.push(plainMount('/etc/hosts', await hostsFile(request, deps)));
  await mountTerminationFile(mounts, request, deps);
  return {
    name: container.name,
    kind: request.kind,
    attempt,
    image: request.image,
    userImage: container.image ?? '',
    command: expandAll(container.command ?? [], lookup),
    args: expandAll(container.args ?? [], lookup),
    workingDir: container.workingDir ?? '',
    // The container's own values are last and override the others.
    env: [...new Map([...(plugged?.env ?? []), ...env])].map(([name, value]) => ({ name, value })),
    mounts,
    devices: [...prepared.devices, ...(plugged?.devices ?? [])],
    cdiDevices: plugged?.cdiDevices ?? [],
    labels: { ...podLabels(pod), 'io.kubernetes.container.name': container.name },
    annotations: { ...plugged?.annotations, ...containerAnnotations(request) },
    logPath: `${container.name}/${attempt}.log`,
    stdin: container.stdin ?? false,
    stdinOnce: container.stdinOnce ?? false,
    tty: container.tty ?? false,
    resources: linuxResources(pod, container, deps.settings.resources()),
    security: containerSecurity(pod, container, {
      settings: deps.settings.security,
      target: request.target,
      userNamespace: await deps.userNamespaces.mapping(pod),
      extraGroups: deps.volumes.extraSupplementalGroups(pod),
      image: request.imageInfo,
    }),
    stopSignal: container.lifecycle?.stopSignal ?? '',
  };
}

/**
 * The maximum number of characters of an annotation whose length a user chooses, because each list of all containers contains
 * it. A longer value is left out: no path is longer, and the agent itself takes the preStop hook from the pod.
 */
const LONGEST_ANNOTATION = 4096;

/** Returns the annotations by which the agent recognizes its containers, and what they were started with. */
export function containerAnnotations({
  pod,
  container,
  attempt,
}: Pick<ContainerRequest, 'pod' | 'container' | 'attempt'>): Record<string, string> {
  const { terminationMessagePath = '/dev/termination-log', lifecycle } = container;
  const preStop = lifecycle?.preStop === undefined ? undefined : JSON.stringify(lifecycle.preStop);
  const requests = restartingRequests(container);
  const ifShort = (name: string, value: string | undefined): Record<string, string> =>
    value === undefined || value.length > LONGEST_ANNOTATION ? {} : { [name]: value };
  return {
    [HASH_ANNOTATION]: containerHash(container),
    [RESTART_COUNT_ANNOTATION]: String(attempt),
    ...ifShort(TERMINATION_PATH_ANNOTATION, terminationMessagePath),
    [TERMINATION_POLICY_ANNOTATION]: container.terminationMessagePolicy ?? 'File',
    [GRACE_ANNOTATION]: String(pod.spec.terminationGracePeriodSeconds ?? 30),
    ...(requests === undefined ? {} : { [REQUESTS_ANNOTATION]: requests }),
    ...ifShort(PRE_STOP_ANNOTATION, preStop),
  };
}

async function preparedMounts(
  request: ContainerRequest,
  env: ReadonlyMap<string, string>,
  deps: ConfigDeps,
): Promise<PreparedMounts> {
  let prepared: PreparedMounts;
  try {
    prepared = await deps.volumes.containerMounts(request.pod, request.container, env);
  } catch (error) {
    throw new ContainerConfigError(errorMessage(error), { cause: error });
  }
  const mounts = prepared.mounts.map((mount): Mount => {
    if (mount.image === undefined) return mount;
    const image = request.volumeImages.get(mount.image);
    if (image === undefined) throw new ContainerConfigError(`the image ${mount.image} of a volume was not pulled`);
    return { ...mount, image };
  });
  return { mounts, devices: prepared.devices };
}

async function pluggedDevices(
  { pod, container, kind }: ContainerRequest,
  { devices }: ConfigDeps,
): Promise<DeviceRunOptions | undefined> {
  if (kind === 'ephemeral') return undefined;
  try {
    return await devices?.(pod, container);
  } catch (error) {
    throw new ContainerConfigError(errorMessage(error), { cause: error });
  }
}

function pluginMount({ containerPath, hostPath, readonly }: DeviceRunOptions['mounts'][number]): Mount {
  return { ...plainMount(containerPath, hostPath), readonly, seLinuxRelabel: false };
}

function plainMount(containerPath: string, hostPath: string): Mount {
  return {
    containerPath,
    hostPath,
    readonly: false,
    recursiveReadOnly: false,
    propagation: 'private',
    seLinuxRelabel: true,
  };
}

async function hostsFile({ pod, podIps }: ContainerRequest, { settings }: ConfigDeps): Promise<string> {
  const path = join(settings.rootDirectory, 'pods', pod.metadata.uid, 'etc-hosts');
  await writeEtcHosts(path, pod, podIps, podHostname(pod, settings.dns.clusterDomain));
  return path;
}

/**
 * Mounts a file of the agent at the path of the termination log, in place of anything that the pod mounts there: the agent must
 * not read a file that a container created.
 */
async function mountTerminationFile(mounts: Mount[], request: ContainerRequest, deps: ConfigDeps): Promise<void> {
  const path = request.container.terminationMessagePath ?? '/dev/termination-log';
  if (path === '') return;
  const target = posix.resolve('/', path);
  // Several mounts may have one place in different spellings.
  for (let index = mounts.length - 1; index >= 0; index -= 1)
    if (posix.resolve('/', mounts[index]?.containerPath ?? '') === target) mounts.splice(index, 1);
  mounts.push(plainMount(path, await terminationFile(request, deps)));
}

async function terminationFile({ pod, container }: ContainerRequest, { settings }: ConfigDeps): Promise<string> {
  const directory = join(settings.rootDirectory, 'pods', pod.metadata.uid, 'containers', container.name);
  await mkdir(directory, { recursive: true, mode: 0o750 });
  const name = randomBytes(4).toString('hex');
  // Any user of the container may write it.
  await inDirectory(directory, (opened) => opened.createFile(name, { content: '', mode: 0o666 }));
  return join(directory, name);
}
