/**
 * Owns the names and labels of a pod's containers in Docker. The labels hold what the runtime boundary returns and the engine
 * does not store: labels, annotations, attempt, log path, and the image name that the user specified. The agent never touches a
 * pod's container without its own instance label, because several agents may share a daemon.
 */
import { LABEL_INSTANCE } from '../instance.ts';
import type { ContainerConfig, SandboxConfig } from '../runtime.ts';
import type { PodIdentity } from '../runtime-identity.ts';

/** The label that distinguishes sandboxes (`podsandbox`) from containers (`container`). */
export const LABEL_TYPE = 'io.kubernetes.docker.type';
/** The id of the sandbox of a container. */
export const LABEL_SANDBOX = 'io.kubernetes.sandbox.id';
const LABEL_LOG_PATH = 'io.kubernetes.container.logpath';
const LABEL_POD_NAME = 'io.kubernetes.pod.name';
const LABEL_POD_NAMESPACE = 'io.kubernetes.pod.namespace';
/** The label with the uid of the pod, which cri-dockerd sets as well. */
export const LABEL_POD_UID = 'io.kubernetes.pod.uid';
const LABEL_CONTAINER_NAME = 'io.kubernetes.container.name';
const LABEL_ATTEMPT = 'orchlet.dev/attempt';
const LABEL_CREATED = 'orchlet.dev/created-ms';
const LABEL_IMAGE = 'orchlet.dev/image';
const LABEL_NETWORK = 'orchlet.dev/network';
const LABEL_HANDLER = 'orchlet.dev/runtime-handler';
const ANNOTATION_PREFIX = 'annotation.';

const INTERNAL = new Set([
  LABEL_INSTANCE,
  LABEL_TYPE,
  LABEL_SANDBOX,
  LABEL_LOG_PATH,
  LABEL_ATTEMPT,
  LABEL_CREATED,
  LABEL_IMAGE,
  LABEL_NETWORK,
  LABEL_HANDLER,
]);

type DockerLabels = Readonly<Record<string, string>>;

function podLabels(pod: PodIdentity): Record<string, string> {
  return { [LABEL_POD_NAME]: pod.name, [LABEL_POD_NAMESPACE]: pod.namespace, [LABEL_POD_UID]: pod.uid };
}

function annotationLabels(annotations: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(annotations).map(([key, value]) => [ANNOTATION_PREFIX + key, value]));
}

/** Returns the labels of a sandbox. `nowMs` is the creation time that statuses report. */
export function sandboxLabels(instance: string, config: SandboxConfig, nowMs: number): Record<string, string> {
  return {
    ...config.labels,
    ...annotationLabels(config.annotations),
    ...podLabels(config.pod),
    [LABEL_INSTANCE]: instance,
    [LABEL_TYPE]: 'podsandbox',
    [LABEL_ATTEMPT]: String(config.pod.attempt),
    [LABEL_CREATED]: String(nowMs),
    [LABEL_NETWORK]: config.namespaces.network,
    [LABEL_HANDLER]: config.runtimeHandler,
  };
}

/** The agent and the sandbox that a container belongs to. `nowMs` is the creation time that statuses report. */
interface ContainerOrigin {
  readonly instance: string;
  readonly sandboxId: string;
  readonly sandbox: SandboxConfig;
  readonly nowMs: number;
}

/** Returns the labels of a container, from its own configuration and that of its sandbox. */
export function containerLabels(
  config: ContainerConfig,
  { instance, sandboxId, sandbox, nowMs }: ContainerOrigin,
): Record<string, string> {
  return {
    ...config.labels,
    ...annotationLabels(config.annotations),
    ...podLabels(sandbox.pod),
    [LABEL_CONTAINER_NAME]: config.name,
    [LABEL_INSTANCE]: instance,
    [LABEL_TYPE]: 'container',
    [LABEL_SANDBOX]: sandboxId,
    [LABEL_ATTEMPT]: String(config.attempt),
    [LABEL_CREATED]: String(nowMs),
    [LABEL_IMAGE]: config.userImage,
    [LABEL_LOG_PATH]: `${sandbox.logDirectory}/${config.logPath}`,
  };
}

interface LabelFacts {
  readonly pod: PodIdentity;
  readonly container: string;
  readonly sandboxId: string;
  readonly attempt: number;
  readonly createdAtMs: number;
  readonly userImage: string;
  readonly logPath: string;
  readonly network: 'pod' | 'node';
  readonly runtimeHandler: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

/** Decodes the labels of `sandboxLabels` and `containerLabels`. Absent labels count as empty. */
export function readLabels(all: DockerLabels): LabelFacts {
  const labels: Record<string, string> = {};
  const annotations: Record<string, string> = {};
  for (const [key, value] of Object.entries(all)) {
    if (key.startsWith(ANNOTATION_PREFIX)) annotations[key.slice(ANNOTATION_PREFIX.length)] = value;
    else if (!INTERNAL.has(key)) labels[key] = value;
  }
  const attempt = Number(all[LABEL_ATTEMPT] ?? 0);
  return {
    pod: {
      name: all[LABEL_POD_NAME] ?? '',
      namespace: all[LABEL_POD_NAMESPACE] ?? '',
      uid: all[LABEL_POD_UID] ?? '',
      attempt,
    },
    container: all[LABEL_CONTAINER_NAME] ?? '',
    sandboxId: all[LABEL_SANDBOX] ?? '',
    attempt,
    createdAtMs: Number(all[LABEL_CREATED] ?? 0),
    userImage: all[LABEL_IMAGE] ?? '',
    logPath: all[LABEL_LOG_PATH] ?? '',
    network: all[LABEL_NETWORK] === 'node' ? 'node' : 'pod',
    runtimeHandler: all[LABEL_HANDLER] ?? '',
    labels,
    annotations,
  };
}

/**
 * Builds the container name that tools parse from `docker ps`, with the agent's instance at the end: two clusters may run
 * static pods with the same uid.
 */
export function dockerName(container: string, pod: PodIdentity, attempt: number, instance: string): string {
  return `k8s_${container}_${pod.name}_${pod.namespace}_${pod.uid}_${attempt}_${instance.slice(0, 8)}`;
}
