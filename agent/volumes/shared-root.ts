/**
 * Makes the agent's root directory a shared mount, as the kubelet does, because volumes with `mountPropagation` need one:
 * where it is not on a shared mount, it is bound to itself.
 */
import { dirname } from 'node:path';
import { mountOf, type MountPoint } from '../host/mount-table.ts';
import type { Mounter } from './mounter.ts';

/**
 * Makes mounts below a directory visible in all mount namespaces that share it. `path` is the real path, because the table
 * of the kernel has no links. Rejects if the mount fails, and if something is mounted below the directory already, which
 * the new mount would hide.
 */
export async function shareRoot(path: string, mounter: Pick<Mounter, 'list' | 'mount'>): Promise<void> {
  const points = await mounter.list();
  if (mountOf(points, path)?.isShared === true) return;
  const below = points.find((point) => point.path.startsWith(`${path}/`));
  if (below !== undefined) throw new Error(`${below.path} is mounted below it, restart the host`);
  await mounter.mount({ source: path, target: path, options: ['bind', 'rshared'] });
}

/**
 * Removes the mount of `shareRoot`. The mount stays while something is mounted below it, such as a disk or the volume of a CSI
 * driver. A mount that is not of the directory on itself stays too.
 */
export async function unshareRoot(path: string, mounter: Pick<Mounter, 'list' | 'unmount'>): Promise<void> {
  const points = await mounter.list();
  if (points.some((point) => point.path.startsWith(`${path}/`)) || !isBoundToItself(path, points)) return;
  await mounter.unmount(path);
}

/** Whether the directory is a mount of its own filesystem on itself. A disk that is mounted there is not. */
export function isBoundToItself(path: string, points: readonly MountPoint[]): boolean {
  const mount = points.findLast((point) => point.path === path);
  return mount !== undefined && mount.device === mountOf(points, dirname(path))?.device;
}
