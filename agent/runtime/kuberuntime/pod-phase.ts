/** Computes the phase of a pod from its containers' states. Pure. */
import type { Container, ContainerStatusJson, Pod } from '../../model/pod.ts';
import { byName } from './by-name.ts';
import { isSidecar, restartsAfter } from './pod-containers.ts';

/** The reason of the termination that a container gets when all containers of its pod are removed and restarted. */
export const RESTARTING_ALL = 'RestartingAllContainers';

interface Options {
  readonly terminal: boolean;
  /** All containers are being restarted, so that none of them is final, whatever the restart policy is. */
  readonly restartsAll?: boolean;
}

interface Counts {
  running: number;
  waiting: number;
  stopped: number;
  succeeded: number;
  unknown: number;
  /** Terminated containers that will be restarted. */
  restarting: number;
}

/** With `terminal`, containers are not restarted, so that the phase may be final whatever the restart policy is. */
export function podPhase(
  pod: Pod,
  statuses: readonly ContainerStatusJson[],
  options: Options,
): 'Pending' | 'Running' | 'Succeeded' | 'Failed' {
  const init = initState(pod, statuses, options);
  if (init === 'failed') return 'Failed';
  const counts = count(pod, statuses);
  if (init === 'pending' && !(options.terminal && counts.stopped > 0)) return 'Pending';
  if (counts.waiting > 0) return 'Pending';
  if (counts.running > 0 && counts.unknown === 0) return 'Running';
  if (counts.running === 0 && counts.stopped > 0 && counts.unknown === 0) {
    if (options.terminal) return counts.stopped === counts.succeeded ? 'Succeeded' : 'Failed';
    if (counts.restarting > 0 || options.restartsAll === true) return 'Running';
    return counts.stopped === counts.succeeded ? 'Succeeded' : 'Failed';
  }
  return 'Pending';
}

function initState(
  pod: Pod,
  statuses: readonly ContainerStatusJson[],
  { terminal, restartsAll = false }: Options,
): 'done' | 'pending' | 'failed' {
  const regularBegan = pod.spec.containers.some((container) => {
    const status = find(statuses, container);
    return (
      status?.state?.running !== undefined ||
      status?.state?.terminated !== undefined ||
      status?.lastState?.terminated !== undefined
    );
  });
  for (const container of pod.spec.initContainers ?? []) {
    const status = find(statuses, container);
    if (isSidecar(container)) {
      if (!regularBegan && status?.started !== true) return 'pending';
      continue;
    }
    const ended =
      status?.state?.terminated ?? (status?.state?.waiting === undefined ? undefined : status.lastState?.terminated);
    if (ended === undefined) {
      if (!regularBegan) return 'pending';
    } else if (ended.exitCode !== 0 && !restartsAll && ended.reason !== RESTARTING_ALL) {
      const again = !terminal && restartsAfter(pod, container, ended.exitCode ?? 1);
      return again ? 'pending' : 'failed';
    }
  }
  return 'done';
}

function find(statuses: readonly ContainerStatusJson[], container: Container): ContainerStatusJson | undefined {
  return byName(statuses).get(container.name);
}

function count(pod: Pod, statuses: readonly ContainerStatusJson[]): Counts {
  const counts: Counts = { running: 0, waiting: 0, stopped: 0, succeeded: 0, unknown: 0, restarting: 0 };
  for (const container of pod.spec.containers) {
    const status = find(statuses, container);
    if (status?.state?.running !== undefined) counts.running++;
    else if (status?.state?.terminated !== undefined) {
      counts.stopped++;
      if (status.state.terminated.exitCode === 0) counts.succeeded++;
      if (restartsAfter(pod, container, status.state.terminated.exitCode ?? 1)) counts.restarting++;
    } else if (status?.state?.waiting !== undefined) {
      if (status.lastState?.terminated === undefined) counts.waiting++;
      else {
        counts.stopped++;
        counts.restarting++;
      }
    } else counts.unknown++;
  }
  return counts;
}
