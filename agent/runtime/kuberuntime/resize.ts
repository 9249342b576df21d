/**
 * Decides on the in-place resize of containers: compares the resources of a running container with the allocated ones, and
 * checks whether its policy allows the change without a restart. Pure.
 */
import { milliUnits, parseQuantity } from '../../../api/meta/quantity.ts';
import type { Container, Pod } from '../../base/model/pod.ts';
import type { ContainerStatus, LinuxResources } from '../runtime.ts';
import type { ContainerStats } from '../runtime-stats.ts';
import { linuxResources, requestsOf, type ResourceFacts } from './resources.ts';

/**
 * The requests that a container was started with, of the resources whose resize restarts it. Runtimes report no memory request,
 * and one share of CPU for several requests, so this annotation is how a changed request is recognized.
 */
export const REQUESTS_ANNOTATION = 'orchlet.local/restarting-requests';

/** The state of a resize, which the pod's conditions show. */
export interface ResizeConditions {
  readonly pending?: {
    readonly reason: 'Deferred' | 'Infeasible';
    readonly message: string;
    readonly generation: number;
  };
  readonly inProgress?: { readonly error?: string; readonly generation: number };
}

/** What a changed allocation means for a running container. */
export type Resize = 'none' | 'in-place' | 'restart';

/** Returns the value of `REQUESTS_ANNOTATION`, in thousandths of units, or `undefined` if no resize restarts the container. */
export function restartingRequests(container: Container): string | undefined {
  const requests = requestsOf(container);
  const restarting = ['cpu', 'memory'].filter((resource) => needsRestart(container, resource));
  if (restarting.length === 0) return undefined;
  return restarting.map((resource) => `${resource}=${milliUnits(parseQuantity(requests[resource] ?? '0'))}`).join(',');
}

/** Returns how to resize a container that runs. Resources that the runtime does not report count as equal. */
export function resizeOf(pod: Pod, container: Container, status: ContainerStatus, facts: ResourceFacts): Resize {
  const actual = status.resources;
  if (status.state !== 'running' || actual === undefined) return 'none';
  const requests = restartingRequests(container);
  // On Docker, labels of an image may look like annotations. Where requests count, the annotation is the agent's own.
  const requested = requests === undefined ? undefined : status.annotations[REQUESTS_ANNOTATION];
  if (requested !== undefined && requested !== requests) return 'restart';
  const wanted = linuxResources(pod, container, facts);
  const memory = actual.memoryLimitBytes !== undefined && actual.memoryLimitBytes !== wanted.memoryLimitBytes;
  const cpu =
    (actual.cpuQuotaUs !== undefined && Math.max(actual.cpuQuotaUs, 0) !== wanted.cpuQuotaUs) ||
    (actual.cpuShares !== undefined && actual.cpuShares !== wanted.cpuShares);
  if (!memory && !cpu) return 'none';
  return (memory && needsRestart(container, 'memory')) || (cpu && needsRestart(container, 'cpu'))
    ? 'restart'
    : 'in-place';
}

function needsRestart(container: Container, resource: string): boolean {
  const policy = (container.resizePolicy ?? []).find(({ resourceName }) => resourceName === resource);
  return policy?.restartPolicy === 'RestartContainer';
}

/** A running container whose memory limit a resize lowers in place. */
export interface LoweredContainer {
  readonly id: string;
  readonly name: string;
  readonly limitBytes: number;
}

/** Returns the memory limit to which a resize lowers that of the container, or `undefined` if it does not. */
export function loweredMemory(wanted: LinuxResources, status: ContainerStatus): number | undefined {
  const limit = wanted.memoryLimitBytes;
  const before = status.resources?.memoryLimitBytes ?? 0;
  return limit > 0 && (before === 0 || limit < before) ? limit : undefined;
}

/**
 * Returns why memory limits cannot be lowered, or `undefined`. A limit below the usage would make the kernel kill containers,
 * so the whole resize is refused and retried. As in the kubelet, the message shows the pod's usage for its containers too.
 */
export function memoryProblem(
  lowered: { readonly podBytes: number | undefined; readonly containers: readonly LoweredContainer[] },
  stats: readonly Pick<ContainerStats, 'id' | 'memoryUsageBytes' | 'memoryWorkingSetBytes'>[],
): string | undefined {
  // A runtime may report only one of the two usages, so the larger one counts.
  const usages = new Map<string, number>(
    stats.map((each) => [each.id, Math.max(each.memoryUsageBytes, each.memoryWorkingSetBytes)]),
  );
  const ofPod = [...usages.values()].reduce((sum, usage) => sum + usage, 0);
  const below = (owner: string, limit: number): string =>
    `attempting to set ${owner} memory limit (${limit}) below current usage (${ofPod})`;
  const { podBytes, containers } = lowered;
  const problems = [
    ...(podBytes !== undefined && ofPod >= podBytes ? [below('pod', podBytes)] : []),
    ...containers
      .filter(({ id, limitBytes }) => (usages.get(id) ?? 0) >= limitBytes)
      .map(({ name, limitBytes }) => below(`container "${name}"`, limitBytes)),
  ];
  if (problems.length === 0) return undefined;
  return `cannot decrease memory limits: ${problems.length === 1 ? problems.join() : `[${problems.join(', ')}]`}`;
}
