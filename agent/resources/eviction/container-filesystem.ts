/**
 * The thresholds of the filesystem of writable layers. As in the kubelet they are those of the filesystem that holds the
 * layers, whatever the flags say. Pure.
 */
import type { StorageLayout } from './signals.ts';
import type { Signal, Threshold } from './thresholds.ts';

const COPIES: Readonly<Record<'nodefs' | 'imagefs', Readonly<Partial<Record<Signal, Signal>>>>> = {
  nodefs: { 'nodefs.available': 'containerfs.available', 'nodefs.inodesFree': 'containerfs.inodesFree' },
  imagefs: { 'imagefs.available': 'containerfs.available', 'imagefs.inodesFree': 'containerfs.inodesFree' },
};

/** Returns the thresholds with those of the containers' filesystem. */
export function withContainerThresholds(
  thresholds: readonly Threshold[],
  { dedicatedImages, splitContainers }: StorageLayout,
): readonly Threshold[] {
  // The kubelet does not expect layers beside images that share the root directory's filesystem.
  if (!dedicatedImages && splitContainers) return thresholds;
  const copies = COPIES[dedicatedImages && !splitContainers ? 'imagefs' : 'nodefs'];
  const others = thresholds.filter(({ signal }) => !signal.startsWith('containerfs.'));
  const copied = others.flatMap((threshold) => {
    const signal = copies[threshold.signal];
    return signal === undefined ? [] : [{ ...threshold, signal }];
  });
  return [...others, ...copied];
}
