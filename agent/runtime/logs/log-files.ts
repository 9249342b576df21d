/**
 * Accesses the files of container logs, `<logs>/<pod>/<container>/<attempt>.log`. Pods with host paths may write to these
 * directories, so no link below `<logs>` is followed and only regular files are opened.
 */
import type { FileHandle } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { Directory, ifMissing } from '../../base/files/beneath.ts';

/**
 * Calls `work` with the opened directory of the log and the name of the log's file, and closes the directory afterwards.
 * Rejects if the directory is missing or is reached by a link.
 */
export async function inLogFolder<T>(log: string, work: (folder: Directory, name: string) => Promise<T>): Promise<T> {
  const container = dirname(log);
  const pod = dirname(container);
  const folder = await Directory.beneath(dirname(pod), [pod, container].map((path) => basename(path)).filter(isName));
  try {
    return await work(folder, basename(log));
  } finally {
    await folder.close();
  }
}

/** Creates the directory of the log. Does not follow a link in the place of the pod's or the container's directory. */
export async function makeLogFolder(log: string): Promise<void> {
  const container = dirname(log);
  const pod = dirname(container);
  await makeBeneath(dirname(pod), [pod, container]);
}

/** Creates the directory of the logs of a pod. Does not follow a link in its place. */
export async function makePodLogFolder(folder: string): Promise<void> {
  await makeBeneath(dirname(folder), [folder]);
}

async function makeBeneath(logs: string, paths: readonly string[]): Promise<void> {
  let folder = await makeTrusted(logs);
  try {
    for (const name of paths.map((path) => basename(path)).filter(isName)) {
      const inner = await folder.make(name, 0o755);
      await folder.close();
      folder = inner;
    }
  } finally {
    await folder.close();
  }
}

/** Opens the directory of all logs, and creates it with its parents if it is missing. */
async function makeTrusted(path: string): Promise<Directory> {
  const found = await Directory.open(path).catch(ifMissing);
  if (found !== undefined) return found;
  const outer = await makeTrusted(dirname(path));
  try {
    return await outer.make(basename(path), 0o755);
  } finally {
    await outer.close();
  }
}

/** Excludes the empty name that `basename` returns for `/`. */
function isName(name: string): boolean {
  return name !== '';
}

/** Opens the log for reading unless `flags` say otherwise. A link is not followed. */
export function openLog(log: string, flags?: number, mode?: number): Promise<FileHandle> {
  return inLogFolder(log, (folder, name) => folder.openFile(name, flags, mode));
}

/** Returns the names of a log's rotated files, the oldest first. */
export async function rotatedNames(folder: Directory, log: string): Promise<readonly string[]> {
  return (await folder.names()).filter((name) => name.startsWith(`${log}.`)).toSorted();
}
