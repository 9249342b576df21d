/** Ranks pods for eviction for a scarce resource. Pure. */
import type { Pod } from '../../base/model/pod.ts';
import { bytesOf, podResources, requestsOf } from '../../runtime/kuberuntime/resources.ts';
import { isCriticalPod } from '../../base/model/pod-kinds.ts';
import { isRequested, type StarvedResource } from './thresholds.ts';

/** The usage of a pod. */
export interface PodConsumption {
  readonly memoryBytes: number;
  readonly processes: number;
  /** The usage of the scarce filesystem. */
  readonly diskBytes: number;
  readonly inodes: number;
}

/** A pod with the values that decide its place. Amounts are bytes, or numbers of inodes or processes. */
export interface RankedPod {
  readonly pod: Pod;
  /** `undefined` if the usage is unknown. */
  readonly usage: number | undefined;
  readonly request: number;
  /** The usage beyond the request, by which pods of the same priority are ranked; infinite if the usage is unknown. */
  readonly excess: number;
  readonly exceedsRequest: boolean;
  readonly priority: number;
  /** Whether the pod is never evicted for a scarce resource. */
  readonly spared: boolean;
}

/**
 * Returns the pods in the order of their eviction, which is the kubelet's: by unknown usage, exceeded request, priority and
 * excess; for processes by priority and number only. For inodes the excess is, as in the kubelet, their number minus the
 * requested bytes of ephemeral storage.
 */
export function rankPods(
  pods: readonly Pod[],
  consumption: (pod: Pod) => PodConsumption | undefined,
  resource: StarvedResource,
): readonly RankedPod[] {
  const ranked = pods.map((pod): RankedPod => {
    const used = consumption(pod);
    const usage = used === undefined ? undefined : usageOf(used, resource);
    const requests = podResources(pod, requestsOf);
    const request = isRequested(resource) ? bytesOf(requests[resource]) : 0;
    const deducted = resource === 'inodes' ? bytesOf(requests['ephemeral-storage']) : request;
    return {
      pod,
      usage,
      request,
      excess: usage === undefined ? Number.POSITIVE_INFINITY : usage - deducted,
      exceedsRequest: usage === undefined || usage > request,
      priority: pod.spec.priority ?? 0,
      spared: isCriticalPod(pod),
    };
  });
  const first = (a: boolean, b: boolean): number => Number(b) - Number(a);
  return ranked.toSorted((a, b) => {
    const byRequest =
      resource === 'pids'
        ? 0
        : first(a.usage === undefined, b.usage === undefined) || first(a.exceedsRequest, b.exceedsRequest);
    return (
      byRequest ||
      a.priority - b.priority ||
      (a.excess === b.excess ? 0 : b.excess - a.excess) ||
      (b.usage ?? 0) - (a.usage ?? 0)
    );
  });
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
