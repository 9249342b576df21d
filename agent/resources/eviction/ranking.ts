/** In which order pods are evicted for a resource that runs short. Pure: usage and pods in, the order and its reasons out. */
import type { Pod } from '../../model/core-types.ts';
import { bytesOf, isCritical, podResources, requestsOf } from '../../runtime/kuberuntime/resources.ts';
import { isMirrorPod, isStaticPod } from '../../pods/workers/pod-manager.ts';
import type { StarvedResource } from './thresholds.ts';

/** What a pod uses; `undefined` as a whole where nothing is known of it. */
export interface PodConsumption {
  readonly memoryBytes: number;
  readonly processes: number;
  /** Of the file system in question. */
  readonly diskBytes: number;
  readonly inodes: number;
}

export interface RankedPod {
  readonly pod: Pod;
  readonly usage: number | undefined;
  readonly request: number;
  readonly exceedsRequest: boolean;
  readonly priority: number;
  /** Never evicted for want of resources. */
  readonly spared: boolean;
}

/**
 * First to go first. Memory and disk: pods above their request (those of which nothing is known count so), then low
 * priority, then by how far they are above it. Inodes the same with a request of nothing; processes: priority, then number.
 */
export function rankPods(
  pods: readonly Pod[],
  consumption: (pod: Pod) => PodConsumption | undefined,
  resource: StarvedResource,
): readonly RankedPod[] {
  const ranked = pods.map((pod): RankedPod => {
    const used = consumption(pod);
    const usage = used === undefined ? undefined : usageOf(used, resource);
    const request =
      resource === 'memory' || resource === 'ephemeral-storage' ? bytesOf(podResources(pod, requestsOf)[resource]) : 0;
    return {
      pod,
      usage,
      request,
      exceedsRequest: usage === undefined || usage > request,
      priority: pod.spec.priority ?? 0,
      spared: isSpared(pod),
    };
  });
  const first = (a: boolean, b: boolean): number => Number(b) - Number(a);
  return ranked.toSorted((a, b) => {
    const byRequest =
      resource === 'pids'
        ? 0
        : first(a.usage === undefined, b.usage === undefined) || first(a.exceedsRequest, b.exceedsRequest);
    return byRequest || a.priority - b.priority || excess(b) - excess(a) || (b.usage ?? 0) - (a.usage ?? 0);
  });
}

function excess(pod: RankedPod): number {
  return pod.usage === undefined ? Number.POSITIVE_INFINITY : pod.usage - pod.request;
}

function usageOf(consumption: PodConsumption, resource: StarvedResource): number {
  switch (resource) {
    case 'memory':
      return consumption.memoryBytes;
    case 'ephemeral-storage':
      return consumption.diskBytes;
    case 'inodes':
      return consumption.inodes;
    case 'pids':
      return consumption.processes;
  }
}

/** Static pods, their mirrors, and pods of the system's priorities. */
export function isSpared(pod: Pod): boolean {
  return isStaticPod(pod) || isMirrorPod(pod) || isCritical(pod);
}
