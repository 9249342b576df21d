/** Computes the usage of the scarce resource by each pod, from the last measurements of usage and storage. Pure. */
import type { Pod } from '../../base/model/pod.ts';
import type { PodStorage } from '../statistics/storage-usage.ts';
import type { UsageSnapshot } from '../statistics/usage.ts';
import type { MeasuredUsage } from './messages.ts';
import type { PodConsumption } from './ranking.ts';
import type { StorageLayout } from './signals.ts';
import type { Signal } from './thresholds.ts';

interface Consumption {
  readonly of: (pod: Pod) => PodConsumption | undefined;
  /** What the message of an eviction shows; `undefined` for a pod whose memory was not measured. */
  readonly measured: (pod: Pod) => MeasuredUsage | undefined;
}

type Part = 'layers' | 'logs' | 'volumes';

const ALL_PARTS: readonly Part[] = ['layers', 'logs', 'volumes'];

/**
 * Returns the parts of a pod's storage by which pods are ranked under a signal, as the kubelet ranks them. On a node whose
 * images have a filesystem of their own without writable layers, pods cannot use that filesystem.
 */
export function partsOn(signal: Signal, { dedicatedImages, splitContainers }: StorageLayout): readonly Part[] {
  if (!dedicatedImages) return ALL_PARTS;
  if (splitContainers) return signal.startsWith('imagefs.') ? [] : ALL_PARTS;
  return signal.startsWith('nodefs.') ? ['logs', 'volumes'] : ['layers'];
}

/**
 * Returns the consumption of each pod. `parts` are the parts of its storage that count for the scarce filesystem. A pod
 * without any measurement has no consumption, which is not the same as 0.
 */
export function consumptionFrom(
  usage: UsageSnapshot,
  storage: ReadonlyMap<string, PodStorage>,
  parts: readonly Part[],
): Consumption {
  const byUid = new Map(usage.pods.map((entry) => [entry.pod.metadata.uid, entry]));
  return {
    of(pod) {
      const used = byUid.get(pod.metadata.uid);
      const written = storage.get(pod.metadata.uid);
      if (used === undefined && written === undefined) return undefined;
      const disk = written === undefined ? { usedBytes: 0, inodesUsed: 0 } : writtenBy(written, parts);
      return {
        memoryBytes: used?.usage.memory.workingSetBytes ?? 0,
        processes: used?.usage.processes.current ?? 0,
        diskBytes: disk.usedBytes,
        inodes: disk.inodesUsed,
      };
    },
    measured(pod) {
      const used = byUid.get(pod.metadata.uid);
      const written = storage.get(pod.metadata.uid);
      if (used === undefined) return undefined;
      const containers = used.containers.map((container) => {
        const disk = written?.containers.get(container.name);
        return {
          name: container.name,
          memoryBytes: container.usage.memory.workingSetBytes,
          diskBytes: disk === undefined ? 0 : disk.layer.usedBytes + disk.logs.usedBytes,
        };
      });
      return { memoryBytes: used.usage.memory.workingSetBytes, containers };
    },
  };
}

function writtenBy(
  storage: PodStorage,
  parts: readonly Part[],
): { readonly usedBytes: number; readonly inodesUsed: number } {
  const amounts = [
    ...[...storage.containers.values()].flatMap(({ layer, logs }) => [
      ...(parts.includes('layers') ? [layer] : []),
      ...(parts.includes('logs') ? [logs] : []),
    ]),
    ...(parts.includes('volumes')
      ? storage.volumes.filter((volume) => volume.ephemeral && !volume.memory).map((volume) => volume.usage)
      : []),
  ];
  return {
    usedBytes: amounts.reduce((sum, amount) => sum + amount.usedBytes, 0),
    inodesUsed: amounts.reduce((sum, amount) => sum + amount.inodesUsed, 0),
  };
}
