/**
 * Computes the status of a pod from its specification, the state of the runtime, the results of its probes, its allocated
 * resources, the previous status and the time. Pure.
 */
import { formatTime } from '../../../api/machinery/clock.ts';
import type { Container, ContainerStatusJson, Pod, PodStatus } from '../../base/model/pod.ts';
import type { ProbeResults } from './probe-results.ts';
import type { ContainerStatus } from '../runtime.ts';
import { type ConditionsInput, type PodEnd, podConditions } from './api-conditions.ts';
import { byName } from './by-name.ts';
import type { WaitingReason } from './container-starter.ts';
import { restartAllTrigger } from './pod-actions.ts';
import { allContainers, type ContainerKind, isSidecar, shouldStart } from './pod-containers.ts';
import { podPhase, RESTARTING_ALL } from './pod-phase.ts';
import { withProbeResults } from './readiness.ts';
import { qosClass, requestsOf } from './resources.ts';
import { containerResourcesStatus, podResourcesStatus } from './status-resources.ts';
import { boundedMessage } from './termination-message.ts';

interface StatusInput extends ConditionsInput {
  /** The pod has exceeded its deadline. */
  readonly overdue?: Pick<PodEnd, 'reason' | 'message'>;
  readonly runtimeName: string;
  readonly waiting: (container: string) => WaitingReason | undefined;
  readonly hostIps: readonly string[];
  /** The runtime supports recursive read-only mounts. */
  readonly recursiveReadOnly: boolean;
  /** The names of containers that do not have their allocated resources yet. */
  readonly resizing: readonly string[];
  readonly probes: ProbeResults;
  /** Returns the health of the devices of a container, or nothing if it has none. */
  readonly deviceHealth: (container: string) => ContainerStatusJson['allocatedResourcesStatus'];
  /** Returns the termination message of a terminated container. */
  readonly terminationMessage: (status: ContainerStatus) => string;
}

type State = NonNullable<ContainerStatusJson['state']>;

/** Returns the complete status. Conditions of other writers stay as they are. */
export function apiPodStatus(input: StatusInput): PodStatus {
  const { pod, previous, probes } = input;
  const containers = withProbeResults(pod, containerPart(input), { probes, previous });
  const status = { ...containers, ...podResourcesStatus(input), ...phasePart(input, containers), ...addresses(input) };
  const whole = { ...status, conditions: podConditions(input, status) };
  if (input.ended === undefined) return whole;
  // The conditions are those of the containers, which run until they are killed.
  const { reason, message } = input.ended;
  return { ...whole, phase: status.phase === 'Succeeded' ? 'Succeeded' : 'Failed', reason, message };
}

/** Returns the phase, with the reason and the message for which a deadline or an earlier sync has ended the pod. */
function phasePart(input: StatusInput, containers: PodStatus): Partial<PodStatus> {
  const { pod, previous, terminal, overdue } = input;
  if (overdue !== undefined) return { phase: 'Failed', reason: overdue.reason, message: overdue.message };
  const { phase: before, reason, message } = previous ?? {};
  const statuses = [...(containers.containerStatuses ?? []), ...(containers.initContainerStatuses ?? [])];
  const computed = podPhase(pod, statuses, { terminal, hasBegun: hasBegun(input) });
  // A phase that the API server shows as final stays. Until then the exit codes decide: a pod that succeeds although it is
  // evicted has not failed, and does not show why it was evicted, as with the kubelet.
  const phase = [pod.status?.phase, computed, before].find((each) => each !== undefined && isFinal(each)) ?? computed;
  if (phase !== before) return { phase };
  return { phase, ...(reason === undefined ? {} : { reason }), ...(message === undefined ? {} : { message }) };
}

function isFinal(phase: string): boolean {
  return phase === 'Failed' || phase === 'Succeeded';
}

/** Whether the current sandbox, which must be ready, has a regular container. */
function hasBegun({ pod, runtime }: StatusInput): boolean {
  const [sandbox] = runtime.sandboxes;
  if (sandbox?.state !== 'ready') return false;
  const regular = new Set(pod.spec.containers.map(({ name }) => name));
  return runtime.containers.some(({ name, sandboxId }) => sandboxId === sandbox.id && regular.has(name));
}

/** Whether all containers are killed and removed to be restarted. The last status remembers it after the trigger is removed. */
function isRestartingAll({ pod, runtime, previous, terminal }: StatusInput): boolean {
  if (terminal) return false;
  if (restartAllTrigger(pod, runtime, runtime.sandboxes[0]?.id) !== undefined) return true;
  return (previous?.conditions ?? []).some(
    ({ type, status }) => type === 'AllContainersRestarting' && status === 'True',
  );
}

function containerPart(input: StatusInput): PodStatus {
  const { pod, previous } = input;
  const statusesOf = (kind: ContainerKind): ContainerStatusJson[] =>
    allContainers(pod)
      .filter((entry) => entry.kind === kind)
      .map((entry) => containerStatus(input, entry.container, kind));
  const byNames = (a: ContainerStatusJson, b: ContainerStatusJson): number => (a.name < b.name ? -1 : 1);
  const regular = statusesOf('regular')
    .toSorted(byNames)
    .map((entry) => withDeviceHealth(entry, input.deviceHealth(entry.name)));
  const init = statusesOf('init');
  // Ephemeral containers have no probes, so that nothing decides whether they have started.
  const ephemeral = statusesOf('ephemeral')
    .toSorted(byNames)
    .map(({ started: _started, ...status }) => status);
  return {
    qosClass: qosClass(pod),
    startTime: previous?.startTime ?? formatTime(input.nowMs),
    ...(pod.metadata.generation === undefined ? {} : { observedGeneration: pod.metadata.generation }),
    ...(regular.length === 0 ? {} : { containerStatuses: regular }),
    ...(init.length === 0 ? {} : { initContainerStatuses: init }),
    ...(ephemeral.length === 0 ? {} : { ephemeralContainerStatuses: ephemeral }),
  } as PodStatus;
}

function withDeviceHealth(
  status: ContainerStatusJson,
  health: ContainerStatusJson['allocatedResourcesStatus'],
): ContainerStatusJson {
  return health === undefined ? status : { ...status, allocatedResourcesStatus: health };
}

function containerStatus(input: StatusInput, container: Container, kind: ContainerKind): ContainerStatusJson {
  const { pod, runtime } = input;
  const attempts = runtime.containers.filter((entry) => entry.name === container.name);
  const [newest, second] = attempts;
  const old = previousOf(input.previous, container.name);
  const mounts = volumeMounts(container, input.recursiveReadOnly);
  if (newest === undefined)
    return isDoneInit(input, container, kind) && old?.state?.terminated === undefined
      ? removedInit(container, old, mounts)
      : missingContainer(input, { container, kind }, old, mounts);
  const resources = containerResourcesStatus(pod, container, { isRunning: newest.state === 'running' });
  const status = {
    name: container.name,
    state: stateOf(input, newest),
    lastState:
      second !== undefined && second.state === 'exited' ? stateOf(input, second) : lastTermination(old, newest.attempt),
    ready: false,
    started: false,
    restartCount: newest.attempt,
    image: newest.image === '' ? (container.image ?? '') : newest.image,
    imageID: newest.imageRef === '' ? newest.imageId : newest.imageRef,
    containerID: `${input.runtimeName}://${newest.id}`,
    // The actual resources: the previous ones until the runtime has applied the resize.
    resources: input.resizing.includes(container.name) ? (old?.resources ?? resources) : resources,
    ...(Object.keys(requestsOf(container)).length === 0 ? {} : { allocatedResources: requestsOf(container) }),
    ...mounts,
    ...(newest.user === undefined
      ? {}
      : {
          user: {
            linux: {
              uid: newest.user.uid,
              gid: newest.user.gid,
              supplementalGroups: [...newest.user.supplementalGroups],
            },
          },
        }),
  } as ContainerStatusJson;
  if (!waits(pod, container, kind, newest)) return status;
  const reason = input.waiting(container.name);
  if (reason === undefined) return status;
  if (status.state?.terminated !== undefined) status.lastState = status.state;
  status.state = {
    waiting: { reason: reason.reason, ...(reason.message === '' ? {} : { message: reason.message }) },
  } as State;
  return status;
}

/**
 * Returns the termination before attempt `attempt` from the last status, because the runtime has removed that container; empty
 * if the last status has none.
 */
function lastTermination(old: ContainerStatusJson | undefined, attempt: number): State {
  if (old === undefined || (old.restartCount ?? 0) > attempt) return {};
  if (old.restartCount === attempt) return old.lastState ?? {};
  if (old.state?.terminated !== undefined) return old.state;
  // A container that waited for its restart had its termination in the last state already.
  return old.state?.waiting === undefined ? {} : (old.lastState ?? {});
}

/** Whether a later sync will start the container. Init containers that exited with 0 are terminated, also sidecars. */
function waits(pod: Pod, container: Container, kind: ContainerKind, newest: ContainerStatus | undefined): boolean {
  if (kind === 'init' && newest?.state === 'exited' && newest.exitCode === 0) return false;
  return shouldStart(pod, container, newest);
}

/**
 * Whether this is an init container, but no sidecar, that has succeeded: the runtime has regular containers of the pod, which
 * start only afterwards.
 */
function isDoneInit({ pod, runtime }: StatusInput, container: Container, kind: ContainerKind): boolean {
  if (kind !== 'init' || isSidecar(container)) return false;
  return pod.spec.containers.some(({ name }) => runtime.containers.some((entry) => entry.name === name));
}

/** Returns the status of an init container that the runtime and the agent have forgotten, in the words of the kubelet. */
function removedInit(
  container: Container,
  old: ContainerStatusJson | undefined,
  mounts: Partial<ContainerStatusJson>,
): ContainerStatusJson {
  const message =
    'Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally';
  return {
    ...absentContainer(container, old, mounts),
    state: { terminated: { exitCode: 0, reason: 'Completed', message, startedAt: null, finishedAt: null } },
    lastState: {},
    ready: true,
  } as unknown as ContainerStatusJson;
}

/** Returns the fields that have the same values for every container that the runtime does not have. */
function absentContainer(
  container: Container,
  old: ContainerStatusJson | undefined,
  mounts: Partial<ContainerStatusJson>,
): Partial<ContainerStatusJson> {
  return {
    name: container.name,
    ready: false,
    started: false,
    restartCount: old?.restartCount ?? 0,
    image: container.image ?? '',
    imageID: '',
    ...mounts,
  };
}

/** Returns the status of a container that was removed with all others of its pod, in the words of the kubelet. */
function removedToRestart(old: ContainerStatusJson): Partial<ContainerStatusJson> {
  const why = { reason: RESTARTING_ALL, message: 'The container is removed because RestartAllContainers in place' };
  return {
    state: { waiting: why },
    lastState: { terminated: { ...why, exitCode: 137, startedAt: null, finishedAt: null } },
    restartCount: (old.restartCount ?? 0) + 1,
  } as unknown as Partial<ContainerStatusJson>;
}

/** Returns the status of a container that the runtime does not have: not created yet, or removed. */
function missingContainer(
  input: StatusInput,
  { container, kind }: { readonly container: Container; readonly kind: ContainerKind },
  old: ContainerStatusJson | undefined,
  mounts: Partial<ContainerStatusJson>,
): ContainerStatusJson {
  const { pod } = input;
  const initializing = (pod.spec.initContainers ?? []).length > 0;
  const base = absentContainer(container, old, mounts);
  const waiting = { waiting: { reason: initializing ? 'PodInitializing' : 'ContainerCreating' } } as State;
  if (old !== undefined && old.state?.waiting === undefined && kind !== 'ephemeral' && isRestartingAll(input))
    // The status of a container that had terminated keeps its ids and times.
    return { ...(old.state?.terminated === undefined ? base : old), ...removedToRestart(old) } as ContainerStatusJson;
  if (old?.state?.terminated !== undefined) return { ...old, ...mounts } as ContainerStatusJson;
  const reason = waits(pod, container, kind, undefined) ? input.waiting(container.name) : undefined;
  const state =
    reason === undefined
      ? waiting
      : ({
          waiting: { reason: reason.reason, ...(reason.message === '' ? {} : { message: reason.message }) },
        } as State);
  return { ...base, state, ...lostContainer(pod, old) } as ContainerStatusJson;
}

/**
 * Returns the last state and the restart count of a container that the runtime does not have. If it ran and the last status
 * has no earlier termination, it has terminated in an unknown way. That counts as a restart, unless its pod is being deleted.
 */
function lostContainer(
  pod: Pod,
  old: ContainerStatusJson | undefined,
): Pick<ContainerStatusJson, 'lastState' | 'restartCount'> {
  const { lastState = {}, restartCount = 0 } = old ?? {};
  if (old?.state?.running === undefined || lastState.terminated !== undefined) return { lastState, restartCount };
  const terminated = {
    exitCode: 137,
    reason: 'ContainerStatusUnknown',
    message: 'The container could not be located when the pod was deleted.  The container used to be Running',
    startedAt: null,
    finishedAt: null,
  };
  const isRestarted = pod.metadata.deletionTimestamp === undefined;
  return {
    lastState: { terminated } as unknown as State,
    restartCount: isRestarted ? restartCount + 1 : restartCount,
  };
}

const NONE: readonly ContainerStatusJson[] = [];

function previousOf(previous: PodStatus | undefined, name: string): ContainerStatusJson | undefined {
  return (
    byName(previous?.containerStatuses ?? NONE).get(name) ??
    byName(previous?.initContainerStatuses ?? NONE).get(name) ??
    byName(previous?.ephemeralContainerStatuses ?? NONE).get(name)
  );
}

function stateOf(input: StatusInput, status: ContainerStatus): State {
  const containerID = `${input.runtimeName}://${status.id}`;
  switch (status.state) {
    case 'running':
      return { running: { startedAt: formatTime(status.startedAtMs) } } as State;
    case 'created':
      return { waiting: { reason: 'ContainerCreating' } } as State;
    case 'unknown':
      return {
        terminated: {
          exitCode: 137,
          reason: 'ContainerStatusUnknown',
          message: 'The container could not be located when the pod was terminated',
          startedAt: null,
          finishedAt: null,
        },
      } as unknown as State;
    case 'exited': {
      const message = boundedMessage(input.terminationMessage(status), input.pod);
      return {
        terminated: {
          exitCode: status.exitCode,
          reason: status.reason,
          ...(message === '' ? {} : { message }),
          startedAt: formatTime(status.startedAtMs),
          finishedAt: formatTime(status.finishedAtMs),
          containerID,
        },
      } as State;
    }
  }
}

/**
 * Returns the volume mounts of a container's status, which show whether a mount with `IfPossible` became recursively read-only.
 */
function volumeMounts(container: Container, recursiveReadOnly: boolean): Partial<ContainerStatusJson> {
  const mounts = (container.volumeMounts ?? []).map((mount) => ({
    name: mount.name,
    mountPath: mount.mountPath,
    ...(mount.readOnly === true
      ? {
          readOnly: true,
          recursiveReadOnly:
            recursiveReadOnly && (mount.recursiveReadOnly === 'Enabled' || mount.recursiveReadOnly === 'IfPossible')
              ? 'Enabled'
              : 'Disabled',
        }
      : {}),
  }));
  return mounts.length === 0 ? {} : ({ volumeMounts: mounts } as Partial<ContainerStatusJson>);
}

function addresses({ pod, previous, hostIps, runtime }: StatusInput): Partial<PodStatus> {
  const [hostIp] = hostIps;
  const current = pod.spec.hostNetwork === true ? hostIps : runtime.ips;
  // A terminated pod keeps its addresses.
  const ips = current.length > 0 ? current : (previous?.podIPs ?? []).map((entry) => entry.ip ?? '');
  const [podIp] = ips;
  return {
    ...(hostIp === undefined ? {} : { hostIP: hostIp, hostIPs: hostIps.map((ip) => ({ ip })) }),
    ...(podIp === undefined ? {} : { podIP: podIp, podIPs: ips.map((ip) => ({ ip })) }),
  };
}
