/** Builds the messages of an evicted pod's status and event. The texts are the kubelet's, because tools match them. Pure. */
import { formatQuantity, parseQuantity } from '../../../api/meta/quantity.ts';
import type { Pod } from '../../base/model/pod.ts';
import { bytesOf, podLevel } from '../../runtime/kuberuntime/resources.ts';
import {
  type Observations,
  type StarvedResource,
  type Threshold,
  formatAmount,
  formatThreshold,
  isRequested,
  resourceOf,
} from './thresholds.ts';

/** What a pod used when it was evicted. */
export interface MeasuredUsage {
  readonly memoryBytes: number;
  readonly containers: readonly ContainerConsumption[];
}

interface ContainerConsumption {
  readonly name: string;
  readonly memoryBytes: number;
  readonly diskBytes: number;
}

interface EvictionMessage {
  readonly message: string;
  readonly annotations: Readonly<Record<string, string>>;
}

/** The messages of pods that exceed a limit of local storage. */
export const storageMessages = {
  emptyDir: (volume: string, limit: string): string =>
    `Usage of EmptyDir volume "${volume}" exceeds the limit "${limit}". `,
  podStorage: (limit: string): string =>
    `Pod ephemeral local storage usage exceeds the total limit of containers ${limit}. `,
  containerStorage: (container: string, limit: string): string =>
    `Container ${container} exceeded its local ephemeral storage limit "${limit}". `,
};

/** The resource that is short, what the pod uses (`undefined` if unknown), and the thresholds that may be crossed. */
interface Shortage {
  readonly resource: StarvedResource;
  readonly usage: MeasuredUsage | undefined;
  readonly thresholds: readonly Threshold[];
  readonly observations: Observations;
}

/**
 * Returns the message and the annotations of the event for a pod that is evicted because of a scarce resource. A pod that
 * was not measured has no annotations.
 */
export function evictionMessage(pod: Pod, { resource, usage, thresholds, observations }: Shortage): EvictionMessage {
  let message = `The node was low on resource: ${resource}. `;
  // The kubelet reports the first threshold of the resource that has an observation.
  const reported = thresholds.find(
    (threshold) => resourceOf(threshold.signal) === resource && observations.has(threshold.signal),
  );
  const observed = reported === undefined ? undefined : observations.get(reported.signal);
  if (reported !== undefined && observed !== undefined) {
    const quantity = formatThreshold(reported.value, observed.capacity);
    message += `Threshold quantity: ${quantity}, available: ${formatAmount(resource, observed.available)}. `;
  }
  if (usage === undefined) return { message, annotations: {} };
  const annotations: Record<string, string> = {};
  const podRequest = resource === 'memory' ? podLevel(pod, 'requests')[resource] : undefined;
  if (podRequest !== undefined) {
    const used = formatAmount(resource, usage.memoryBytes);
    message += overuse(`Pod ${pod.metadata.name}`, used, { resource, request: podRequest });
    annotations['offending_pod'] = pod.metadata.name;
    annotations['offending_pod_usage'] = used;
  }
  const offenders: string[] = [];
  const usages: string[] = [];
  if (isRequested(resource)) {
    for (const consumption of usage.containers) {
      const container = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].find(
        (entry) => entry.name === consumption.name,
      );
      if (container === undefined) continue;
      const written = (container.resources?.requests as Record<string, string> | undefined)?.[resource];
      const used = resource === 'memory' ? consumption.memoryBytes : consumption.diskBytes;
      if (used <= bytesOf(written)) continue;
      const amount = formatAmount(resource, used);
      message += overuse(`Container ${container.name}`, amount, { resource, request: written ?? '0' });
      offenders.push(container.name);
      usages.push(amount);
    }
  }
  return {
    message,
    annotations: {
      ...annotations,
      offending_containers: offenders.join(','),
      offending_containers_usage: usages.join(','),
      starved_resource: resource,
    },
  };
}

function overuse(
  who: string,
  usage: string,
  of: { readonly resource: StarvedResource; readonly request: string },
): string {
  const request = formatQuantity(parseQuantity(of.request));
  return `${who} was using ${usage}, request is ${request}, has larger consumption of ${of.resource}. `;
}
