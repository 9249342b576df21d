/** Finds pods that exceed their storage limits: emptyDir limits, the pod's total and those of single containers. Pure. */
import { compareQuantities, formatQuantity, parseQuantity } from '../../../api/meta/quantity.ts';
import type { Pod } from '../../base/model/pod.ts';
import { bytesOf, limitsOf, podResources } from '../../runtime/kuberuntime/resources.ts';
import type { PodStorage } from '../statistics/storage-usage.ts';
import { storageMessages } from './messages.ts';

interface StorageLimitOptions {
  /** Whether images are on another filesystem than the root directory. Containers are then charged for their logs only. */
  readonly dedicatedImages: boolean;
}

/** Whether the pod has any limit of local storage. */
export function hasStorageLimits(pod: Pod): boolean {
  return (
    (pod.spec.volumes ?? []).some((volume) => volume.emptyDir?.sizeLimit !== undefined) ||
    [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].some(
      (container) => limitsOf(container)['ephemeral-storage'] !== undefined,
    )
  );
}

/** A limit that a pod exceeds: the signal of the metric `kubelet_evictions`, and the message of the eviction. */
export interface ExceededLimit {
  readonly signal: 'emptydirfs.limit' | 'ephemeralpodfs.limit' | 'ephemeralcontainerfs.limit';
  readonly message: string;
}

/** Returns the first limit that the pod exceeds, or `undefined` if it exceeds none. */
export function exceededStorage(
  pod: Pod,
  storage: PodStorage,
  { dedicatedImages }: StorageLimitOptions,
): ExceededLimit | undefined {
  for (const volume of pod.spec.volumes ?? []) {
    const limit = volume.emptyDir?.sizeLimit;
    if (limit === undefined || compareQuantities(parseQuantity(limit), parseQuantity('0')) <= 0) continue;
    const used = storage.volumes.find((entry) => entry.name === volume.name)?.usage.usedBytes ?? 0;
    if (used > bytesOf(limit)) {
      const message = storageMessages.emptyDir(volume.name, formatQuantity(parseQuantity(limit)));
      return { signal: 'emptydirfs.limit', message };
    }
  }
  const total = podResources(pod, limitsOf)['ephemeral-storage'];
  if (total !== undefined && storage.ephemeral.usedBytes > bytesOf(total))
    return { signal: 'ephemeralpodfs.limit', message: storageMessages.podStorage(total) };
  for (const container of pod.spec.containers) {
    const limit = limitsOf(container)['ephemeral-storage'];
    const used = storage.containers.get(container.name);
    if (limit === undefined || used === undefined) continue;
    const bytes = used.logs.usedBytes + (dedicatedImages ? 0 : used.layer.usedBytes);
    if (bytes > bytesOf(limit)) {
      const message = storageMessages.containerStorage(container.name, formatQuantity(parseQuantity(limit)));
      return { signal: 'ephemeralcontainerfs.limit', message };
    }
  }
  return undefined;
}
