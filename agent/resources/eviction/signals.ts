/** Reads the eviction signals: memory from cgroups, filesystems from statfs, processes from /proc. */
import { freemem } from 'node:os';
import { hostCapacity, maxPids, runningPids } from '../../host/host-facts.ts';
import type { Filesystem } from '../statistics/disk-usage.ts';
import type { NodeStorage } from '../statistics/storage-usage.ts';
import type { CgroupUsage } from '../statistics/cgroup-usage.ts';
import type { Observation, Observations, Signal } from './thresholds.ts';

interface SignalSources {
  readonly node: () => Promise<CgroupUsage>;
  /** `undefined` if the agent manages no cgroups. */
  readonly allPods: () => Promise<CgroupUsage | undefined>;
  readonly storage: () => Promise<NodeStorage>;
  /** The memory that all pods together may use; 0 if it is not enforced. */
  readonly allocatableMemoryBytes: () => number;
}

/** The signals that could be read, with the storage of the node from which some of them come. */
export interface HostObservations {
  readonly observations: Observations;
  readonly storage: NodeStorage;
}

/** Measures the signals. Those of a filesystem that cannot be read are absent. */
export async function observeSignals(sources: SignalSources): Promise<HostObservations> {
  const allocatable = sources.allocatableMemoryBytes();
  const [node, allPods, storage] = await Promise.all([
    sources.node(),
    allocatable > 0 ? sources.allPods() : undefined,
    sources.storage(),
  ]);
  const found = new Map<Signal, Observation>();
  const capacity = hostCapacity().memoryBytes;
  if (capacity > 0) found.set('memory.available', { available: availableMemory(capacity, node), capacity });
  if (allPods !== undefined && allocatable > 0) {
    found.set('allocatableMemory.available', {
      available: Math.max(0, allocatable - allPods.memory.workingSetBytes),
      capacity: allocatable,
    });
  }
  const put = (name: 'nodefs' | 'imagefs' | 'containerfs', filesystem: Filesystem | undefined): void => {
    if (filesystem === undefined) return;
    found.set(`${name}.available`, { available: filesystem.availableBytes, capacity: filesystem.capacityBytes });
    // Some file systems (btrfs) count no inodes.
    if (filesystem.inodes > 0)
      found.set(`${name}.inodesFree`, { available: filesystem.inodesFree, capacity: filesystem.inodes });
  };
  put('nodefs', storage.root);
  put('imagefs', storage.images.filesystem);
  put('containerfs', storage.containers.filesystem);
  const maxProcesses = maxPids();
  found.set('pid.available', { available: Math.max(0, maxProcesses - runningPids()), capacity: maxProcesses });
  return { observations: found, storage };
}

/** Which of the filesystems of the root directory, of images and of writable layers are separate. */
export interface StorageLayout {
  /** Images are on another filesystem than the root directory. */
  readonly dedicatedImages: boolean;
  /** Writable layers are on another filesystem than images. */
  readonly splitContainers: boolean;
}

/** Compares device numbers. A filesystem that could not be measured does not count as separate. */
export function layoutOf(storage: NodeStorage): StorageLayout {
  const [root, images, containers] = [
    storage.root?.device,
    storage.images.filesystem?.device,
    storage.containers.filesystem?.device,
  ];
  return {
    dedicatedImages: images !== undefined && images !== root,
    splitContainers: containers !== undefined && containers !== images,
  };
}

type ReclaimStep = 'dead-containers' | 'unused-images';

/**
 * Returns what the node removes under a signal before pods are evicted; empty if nothing that it may remove frees the
 * resource.
 */
export function reclaimSteps(
  signal: Signal,
  { dedicatedImages, splitContainers }: StorageLayout,
): readonly ReclaimStep[] {
  if (signal.startsWith('containerfs.')) return ['dead-containers'];
  if (signal.startsWith('imagefs.'))
    return dedicatedImages && splitContainers ? ['unused-images'] : ['dead-containers', 'unused-images'];
  if (!signal.startsWith('nodefs.')) return [];
  if (!dedicatedImages) return ['dead-containers', 'unused-images'];
  // The writable layers are then on the filesystem of the root directory.
  return splitContainers ? ['dead-containers'] : [];
}

/** Returns the memory without the working set of the host, or what the kernel reports if its cgroup cannot be read. */
function availableMemory(capacity: number, { memory: { workingSetBytes } }: CgroupUsage): number {
  return workingSetBytes === 0 ? freemem() : Math.max(0, capacity - workingSetBytes);
}
