/** Computes the phase of a pod from the states of its containers, by the rules of the kubelet. Pure. */
import type { Container, ContainerStatusJson, Pod } from '../../base/model/pod.ts';
import { isStaticPod } from '../../base/model/pod-kinds.ts';
import { byName } from './by-name.ts';
import { isSidecar, restartsAfter } from './pod-containers.ts';

/** The reason of the termination that a container gets when all containers of its pod are removed and restarted. */
export const RESTARTING_ALL = 'RestartingAllContainers';

interface Options {
  /** The pod has terminated, so that no container is restarted. */
  readonly terminal: boolean;
  /** The current sandbox has a regular container: sidecars that restart do not make the pod Pending again. */
  readonly hasBegun: boolean;
}

interface Counts {
  running: number;
  waiting: number;
  /** Containers without a status. */
  unknown: number;
  /** Regular containers that have terminated. */
  stopped: number;
  succeeded: number;
  /** Terminated containers that will not be restarted. */
  final: number;
}

type Phase = 'Pending' | 'Running' | 'Succeeded' | 'Failed';

/**
 * Computes the phase. `terminal` makes exits final whatever the restart policy is, except for a static pod, whose manifest
 * may return.
 */
export function podPhase(pod: Pod, statuses: readonly ContainerStatusJson[], options: Options): Phase {
  const init = initState(pod, statuses);
  if (init === 'failed') return 'Failed';
  const sidecars = sidecarCounts(pod, statuses);
  const regular = regularCounts(pod, statuses);
  const [running, waiting, unknown] = (['running', 'waiting', 'unknown'] as const).map(
    (state) => sidecars[state] + regular[state],
  ) as [number, number, number];
  if (init === 'pending' || (sidecars.pending > 0 && !options.hasBegun) || waiting > 0) return 'Pending';
  if (unknown > 0) return 'Pending';
  if (running > 0) return 'Running';
  if (regular.stopped === 0) return 'Pending';
  const mayRestart = !options.terminal || isStaticPod(pod);
  if (mayRestart && regular.final < regular.stopped) return 'Running';
  return regular.stopped === regular.succeeded ? 'Succeeded' : 'Failed';
}

/** Returns the state of the init containers that are no sidecars. */
function initState(pod: Pod, statuses: readonly ContainerStatusJson[]): 'done' | 'pending' | 'failed' {
  let state: 'done' | 'pending' = 'done';
  for (const container of pod.spec.initContainers ?? []) {
    if (isSidecar(container)) continue;
    const ended = termination(find(statuses, container));
    if (ended === undefined) state = 'pending';
    else if (ended.exitCode !== 0 && !isRestarted(pod, container, ended)) return 'failed';
  }
  return state;
}

/** Counts the sidecars by their state. A terminated sidecar is not counted. */
function sidecarCounts(
  pod: Pod,
  statuses: readonly ContainerStatusJson[],
): Pick<Counts, 'running' | 'waiting' | 'unknown'> & { readonly pending: number } {
  const counts = { running: 0, waiting: 0, unknown: 0, pending: 0 };
  for (const container of (pod.spec.initContainers ?? []).filter(isSidecar)) {
    const status = find(statuses, container);
    if (status === undefined) counts.unknown++;
    else if (status.state?.running !== undefined) {
      counts.running++;
      if (status.started !== true) counts.pending++;
    } else if (termination(status) === undefined) {
      counts.waiting++;
      counts.pending++;
    }
  }
  return counts;
}

function regularCounts(pod: Pod, statuses: readonly ContainerStatusJson[]): Counts {
  const counts: Counts = { running: 0, waiting: 0, unknown: 0, stopped: 0, succeeded: 0, final: 0 };
  for (const container of pod.spec.containers) {
    const status = find(statuses, container);
    const ended = termination(status);
    if (status === undefined) counts.unknown++;
    else if (status.state?.running !== undefined) counts.running++;
    else if (ended === undefined) counts.waiting++;
    else {
      counts.stopped++;
      if (!isRestarted(pod, container, ended)) counts.final++;
      // A container that waits for its restart has not succeeded.
      if (status.state?.terminated !== undefined && ended.exitCode === 0) counts.succeeded++;
    }
  }
  return counts;
}

type Termination = NonNullable<NonNullable<ContainerStatusJson['state']>['terminated']>;

/** Returns the termination of a container that does not run, also of one that waits for its restart. */
function termination(status: ContainerStatusJson | undefined): Termination | undefined {
  if (status?.state?.terminated !== undefined) return status.state.terminated;
  return status?.state?.running === undefined ? status?.lastState?.terminated : undefined;
}

function isRestarted(pod: Pod, container: Container, { exitCode, reason }: Termination): boolean {
  return reason === RESTARTING_ALL || restartsAfter(pod, container, exitCode ?? 1);
}

function find(statuses: readonly ContainerStatusJson[], container: Container): ContainerStatusJson | undefined {
  return byName(statuses).get(container.name);
}
