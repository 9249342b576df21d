/** Sets up volumes of `emptyDir`: a directory of the pod on the disk, in memory, or on huge pages. */
import { access, mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { initAndMainContainers } from '../../api/kinds/pod-containers.ts';
import { parseQuantity, wholeUnits } from '../../api/meta/quantity.ts';
import type { Pod, Volume } from '../base/model/pod.ts';
import { limitsOf, podResources } from '../runtime/kuberuntime/resources.ts';
import { inDirectory } from '../base/files/beneath.ts';
import { openToAll } from './ownership.ts';
import type { PodMounts } from './pod-mounts.ts';

interface EmptyDirOptions {
  readonly pod: Pod;
  readonly volume: Volume;
  readonly path: string;
  /** The pod's directory. */
  readonly podDirectory: string;
  readonly mounts: PodMounts;
  /** The memory of the node that pods can use; 0 if unknown. */
  readonly allocatableMemoryBytes: number;
  /** Changes the group of a new directory to the pod's. */
  readonly giveToGroup: (path: string) => Promise<void>;
}

/**
 * Creates the directory of an emptyDir, or mounts memory for it. An existing directory belongs to the containers, and a
 * restarted agent does not change it.
 */
export async function setUpEmptyDir(options: EmptyDirOptions): Promise<void> {
  const { pod, volume, path, podDirectory, mounts } = options;
  const readyFile = join(podDirectory, 'plugins', 'kubernetes.io~empty-dir', volume.name, 'ready');
  let isNew = !(await exists(readyFile));
  await mkdir(path, { recursive: true, mode: 0o777 });
  const medium = volume.emptyDir?.medium ?? '';
  if (medium === 'Memory') {
    const sizeBytes = memoryVolumeBytes(pod, volume.emptyDir?.sizeLimit, options.allocatableMemoryBytes);
    const size = sizeBytes > 0 ? [`size=${sizeBytes}`] : [];
    // Kernels before 6.4 have no option that keeps a tmpfs out of the swap.
    isNew = (await mounts.ensure(path, { source: 'tmpfs', type: 'tmpfs' }, [...size, 'noswap'], size)) || isNew;
  } else if (medium.startsWith('HugePages')) {
    const pageSize = hugePageSize(pod, medium);
    isNew =
      (await mounts.ensure(path, { source: 'nodev', type: 'hugetlbfs' }, [`pagesize=${pageSize.replace('i', '')}`])) ||
      isNew;
  }
  if (!isNew) return;
  await inDirectory(path, openToAll);
  await options.giveToGroup(path);
  await mkdir(dirname(readyFile), { recursive: true, mode: 0o750 });
  await writeFile(readyFile, '', { mode: 0o600 });
}

/**
 * Returns the size of a volume in memory: the smallest of its own limit, the limit of the pod, and the memory of the node that
 * pods can use. Pure. 0 means no limit.
 */
export function memoryVolumeBytes(pod: Pod, sizeLimit: string | undefined, allocatableMemoryBytes: number): number {
  const wanted = [sizeLimit === undefined ? 0 : bytesOf(sizeLimit), podMemoryLimit(pod), allocatableMemoryBytes];
  const limits = wanted.filter((bytes) => bytes > 0);
  return limits.length === 0 ? 0 : Math.min(...limits);
}

/** Returns the pod's limit, else the sum of its containers' limits if each has one, else 0. */
function podMemoryLimit(pod: Pod): number {
  const podLimit = pod.spec.resources?.limits?.['memory'];
  if (podLimit !== undefined) return bytesOf(podLimit);
  const containers = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
  if (containers.some((container) => limitsOf(container)['memory'] === undefined)) return 0;
  return bytesOf(podResources(pod, limitsOf)['memory'] ?? '0');
}

/**
 * Returns the page size of the medium (`HugePages-2Mi`), or the only size that the containers request. Throws an error if they
 * do not request it, or several sizes.
 */
export function hugePageSize(pod: Pod, medium: string): string {
  const requested = new Set<string>();
  for (const container of initAndMainContainers(pod.spec)) {
    for (const [name, amount] of Object.entries(container.resources?.requests ?? container.resources?.limits ?? {}))
      if (name.startsWith('hugepages-') && bytesOf(amount) > 0) requested.add(name.slice('hugepages-'.length));
  }
  const wanted = medium === 'HugePages' ? '' : medium.slice('HugePages-'.length);
  if (wanted !== '') {
    if (!requested.has(wanted)) throw noHugePages(medium);
    return wanted;
  }
  const [only = ''] = requested;
  if (requested.size === 0) throw noHugePages(medium);
  if (requested.size > 1)
    throw new Error(`medium: ${medium} can't be used if container requests multiple huge page sizes`);
  return only;
}

function noHugePages(medium: string): Error {
  return new Error(`medium ${medium}: hugePages storage requested, but there is no resource request for huge pages`);
}

function bytesOf(quantity: string | number): number {
  return Number(wholeUnits(parseQuantity(String(quantity))));
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
