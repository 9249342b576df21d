/**
 * Files of container logs, `<logs>/<pod>/<container>/<attempt>.log`. Pods with host paths may write to these folders: nothing
 * below `<logs>` is followed, and only regular files are opened.
 */
import type { FileHandle } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { Directory } from '../../files/beneath.ts';

/** Opens the folder of the log for as long as `work` takes. */
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

/** A path that is too short for all three levels has no name for some. */
function isName(name: string): boolean {
  return name !== '';
}

export function openLog(log: string, flags?: number, mode?: number): Promise<FileHandle> {
  return inLogFolder(log, (folder, name) => folder.openFile(name, flags, mode));
}

/** Names of the rotated files of a log, oldest first. */
export async function rotatedNames(folder: Directory, log: string): Promise<readonly string[]> {
  return (await folder.names()).filter((name) => name.startsWith(`${log}.`)).toSorted();
}
