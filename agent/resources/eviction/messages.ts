/** Builds the messages of an evicted pod's status and event. The texts are the kubelet's, because tools match them. Pure. */
import { formatQuantity, parseQuantity } from '../../../api/meta/quantity.ts';
import type { Pod } from '../../model/pod.ts';
import { bytesOf } from '../../runtime/kuberuntime/resources.ts';
import {
  type Observations,
  type StarvedResource,
  type Threshold,
  amountOf,
  formatAmount,
  resourceOf,
} from './thresholds.ts';

/** What one container has used when its pod was evicted. */
export interface ContainerConsumption {
  readonly name: string;
  readonly memoryBytes: number;
  readonly diskBytes: number;
}

interface EvictionMessage {
  readonly message: string;
  readonly annotations: Readonly<Record<string, string>>;
}

/** The messages of pods that exceed a limit of local storage. */
export const evictionWords = {
  emptyDir: (volume: string, limit: string): string =>
    `Usage of EmptyDir volume "${volume}" exceeds the limit "${limit}". `,
  podStorage: (limit: string): string =>
    `Pod ephemeral local storage usage exceeds the total limit of containers ${limit}. `,
  containerStorage: (container: string, limit: string): string =>
    `Container ${container} exceeded its local ephemeral storage limit "${limit}". `,
};

/** The resource that is short, what the pod's containers use of it, and the thresholds that may be crossed. */
interface Shortage {
  readonly resource: StarvedResource;
  readonly containers: readonly ContainerConsumption[];
  readonly thresholds: readonly Threshold[];
  readonly observations: Observations;
}

/** Returns the message and the annotations of the event for a pod that is evicted because of a scarce resource. */
export function evictionMessage(
  pod: Pod,
  { resource, containers, thresholds, observations }: Shortage,
): EvictionMessage {
  let message = `The node was low on resource: ${resource}. `;
  const crossed = thresholds.find(
    (threshold) => resourceOf(threshold.signal) === resource && observations.has(threshold.signal),
  );
  const observed = crossed === undefined ? undefined : observations.get(crossed.signal);
  if (crossed !== undefined && observed !== undefined) {
    const quantity = formatAmount(resource, amountOf(crossed.value, observed.capacity));
    message += `Threshold quantity: ${quantity}, available: ${formatAmount(resource, observed.available)}. `;
  }
  const offenders: string[] = [];
  const usages: string[] = [];
  if (resource === 'memory' || resource === 'ephemeral-storage') {
    for (const consumption of containers) {
      const container = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].find(
        (entry) => entry.name === consumption.name,
      );
      if (container === undefined) continue;
      const written = (container.resources?.requests as Record<string, string> | undefined)?.[resource];
      const used = resource === 'memory' ? consumption.memoryBytes : consumption.diskBytes;
      if (used <= bytesOf(written)) continue;
      const usage = formatAmount(resource, used);
      message += `Container ${container.name} was using ${usage}, request is ${written === undefined ? '0' : formatQuantity(parseQuantity(written))}, has larger consumption of ${resource}. `;
      offenders.push(container.name);
      usages.push(usage);
    }
  }
  return {
    message,
    annotations: {
      offending_containers: offenders.join(','),
      offending_containers_usage: usages.join(','),
      starved_resource: resource,
    },
  };
}
