/**
 * Mounts of a container below another of its volumes. A volume that is mounted read-only must have a directory for each:
 * the runtime cannot create one there.
 */
import { posix } from 'node:path';
import type { Container, Pod } from '../base/model/pod.ts';
import type { Directory } from '../base/files/beneath.ts';
import type { Payload } from './atomic-writer.ts';

/** Returns the relative paths of other volumes that are mounted directly below the volume, except its own files. Pure. */
export function nestedMountPoints(pod: Pod, volumeName: string, payload: Payload): readonly string[] {
  const containers: readonly Container[] = [
    ...(pod.spec.initContainers ?? []),
    ...pod.spec.containers,
    ...(pod.spec.ephemeralContainers ?? []),
  ];
  const ownNames = new Set([...payload.keys()].map((path) => path.split('/')[0]));
  const found = new Set(containers.flatMap((container) => nestedIn(container, volumeName)));
  return [...found].filter((path) => !ownNames.has(path.split('/')[0]));
}

function nestedIn(container: Container, volumeName: string): readonly string[] {
  const mounts = (container.volumeMounts ?? []).map((mount) => ({
    isOfVolume: mount.name === volumeName && (mount.subPath ?? '') === '' && (mount.subPathExpr ?? '') === '',
    path: posix.resolve('/', mount.mountPath),
  }));
  return mounts
    .filter(({ isOfVolume }) => isOfVolume)
    .flatMap(({ path: outer }) => {
      const below = mounts.filter(({ path }) => isBelow(path, outer)).map(({ path }) => path);
      // A mount below another nested mount is inside that volume, not inside this one.
      return below
        .filter((path) => !below.some((other) => isBelow(path, other)))
        .map((path) => posix.relative(outer, path));
    });
}

function isBelow(path: string, outer: string): boolean {
  return path.startsWith(outer.endsWith('/') ? outer : `${outer}/`) && path !== outer;
}

/** Creates the directories that do not exist yet. Paths are relative to the volume. */
export async function makeNestedMountPoints(volume: Directory, paths: readonly string[]): Promise<void> {
  for (const path of paths) await makeBelow(volume, path.split('/'));
}

async function makeBelow(directory: Directory, [name = '', ...inner]: readonly string[]): Promise<void> {
  const child = await directory.make(name, 0o755);
  try {
    if (inner.length > 0) await makeBelow(child, inner);
  } finally {
    await child.close();
  }
}
