/** Reads the mount table of the kernel, that of the process's own namespace. */
import { readFile } from 'node:fs/promises';

/** A line of the mount table. */
export interface MountPoint {
  readonly path: string;
  readonly type: string;
  readonly source: string;
  /** The options of the filesystem, which all of its mounts share, such as `prjquota`. */
  readonly options: readonly string[];
  /** The major and minor number of the device of the filesystem, `8:1`. */
  readonly device: string;
  /** Mounts below it propagate to its peers, such as containers with `mountPropagation`. */
  readonly isShared: boolean;
}

/** Returns all mount points, the oldest first. */
export async function hostMounts(): Promise<readonly MountPoint[]> {
  return parseMountInfo(await readFile('/proc/self/mountinfo', 'utf8'));
}

/** Parses `/proc/<pid>/mountinfo`, with octal escapes in paths decoded. */
export function parseMountInfo(text: string): MountPoint[] {
  const points: MountPoint[] = [];
  for (const line of text.split('\n')) {
    const [left, right] = line.split(' - ');
    const [, , device, , path, , ...propagation] = left?.split(' ') ?? [];
    const [type, source = '', options = ''] = right?.split(' ') ?? [];
    if (device === undefined || path === undefined || type === undefined) continue;
    points.push({
      path: unescape(path),
      type,
      source: unescape(source),
      options: options.split(','),
      device,
      isShared: propagation.some((field) => field.startsWith('shared:')),
    });
  }
  return points;
}

function unescape(path: string): string {
  // A host with many pods has hundreds of lines, and almost none has an escape.
  if (!path.includes('\\')) return path;
  return path.replace(/\\([0-7]{3})/g, (_whole, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

/**
 * Returns the mount that contains the path, or `undefined` if none does. Of the mounts with the longest path, the newest
 * counts, because it covers the others.
 */
export function mountOf(points: readonly MountPoint[], path: string): MountPoint | undefined {
  let found: MountPoint | undefined;
  for (const point of points) {
    const contains = point.path === '/' || path === point.path || path.startsWith(`${point.path}/`);
    if (contains && point.path.length >= (found?.path.length ?? 0)) found = point;
  }
  return found;
}
