/**
 * Replaces a file by renaming a complete draft to its path, so that readers find either the old content or the new content. The
 * draft is in the same folder under a random name with the suffix `.tmp`.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, mkdirSync, openSync } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readdir, rename, rm, unlink } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';

/** Matches the end of the name of a draft. The path of the file precedes it. */
export const DRAFT_SUFFIX = /\.[0-9a-f]{12}\.tmp$/;

interface ReplaceFileOptions {
  /** The exact permission bits of the new file. The umask of the process does not apply. */
  readonly mode: number;
  /**
   * What survives a power failure once the promise has resolved. `'durable'`, the default, guarantees the new content.
   * `'content'` guarantees the old content or the new, for callers that sync the folder once for many files (`syncFolder`).
   * `'none'` guarantees neither, for files that are rebuilt at the next start.
   */
  readonly sync?: 'durable' | 'content' | 'none';
}

/**
 * Replaces a file in one step. If the file cannot be replaced, rejects and removes the draft. Calls for one path must not
 * overlap if their order matters.
 */
export async function replaceFile(path: string, data: string | Uint8Array, options: ReplaceFileOptions): Promise<void> {
  const { mode, sync = 'durable' } = options;
  const draft = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  try {
    await withHandle(await open(draft, 'wx', mode), async (file) => {
      await file.chmod(mode);
      await file.writeFile(data);
      if (sync !== 'none') await file.sync();
    });
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
  if (sync === 'durable') await syncFolder(dirname(path));
}

/**
 * Renames a file or folder. The new name survives a power failure once the promise has resolved; the content does if it was
 * synced before (`syncTree`).
 */
export async function moveFile(from: string, to: string): Promise<void> {
  await rename(from, to);
  const folders = new Set([dirname(to), dirname(from)]);
  for (const folder of folders) await syncFolder(folder);
}

/** Makes the content of a file, or of a folder and everything below it, survive a power failure. Links are not followed. */
export async function syncTree(path: string): Promise<void> {
  const found = await lstat(path);
  if (found.isDirectory()) {
    for (const name of await readdir(path)) await syncTree(join(path, name));
    await syncFolder(path);
  } else if (found.isFile()) await withHandle(await open(path, 'r'), (file) => file.sync());
}

/**
 * Creates a folder and those above it that are missing, each with the mode less the umask of the process. They survive a power
 * failure once the promise has resolved.
 */
export async function makeFolder(path: string, mode: number): Promise<void> {
  const first = await mkdir(path, { recursive: true, mode });
  for (const folder of foldersAbove(path, first)) await syncFolder(folder);
}

/** Makes a folder as `makeFolder` does, for threads that may wait for the disk. */
export function makeFolderSync(path: string, mode: number): void {
  const first = mkdirSync(path, { recursive: true, mode });
  for (const folder of foldersAbove(path, first)) {
    const descriptor = openSync(folder, 'r');
    try {
      fsyncSync(descriptor);
    } catch (error) {
      if (!cannotSync(error)) throw error;
    } finally {
      closeSync(descriptor);
    }
  }
}

/** Returns the folders that got a new name: those above each of the folders from `first` to `path`. */
function foldersAbove(path: string, first: string | undefined): string[] {
  if (first === undefined) return [];
  const last = dirname(resolve(first));
  const above: string[] = [];
  for (let folder = dirname(resolve(path)); above.at(-1) !== last; folder = dirname(folder)) above.push(folder);
  return above;
}

/** Removes a file, if it is there. It does not come back after a power failure once the promise has resolved. */
export async function removeFile(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return;
    throw error;
  }
  await syncFolder(dirname(path));
}

/** Makes renames, new names and removals in the folder survive a power failure, if the file system can sync folders. */
export async function syncFolder(path: string): Promise<void> {
  await withHandle(await open(path, 'r'), async (folder) => {
    try {
      await folder.sync();
    } catch (error) {
      if (!cannotSync(error)) throw error;
    }
  });
}

/** Whether the error is that of a file system that cannot sync folders. */
const cannotSync = (error: unknown): boolean => error instanceof Error && 'code' in error && error.code === 'EINVAL';

async function withHandle(handle: FileHandle, work: (handle: FileHandle) => Promise<void>): Promise<void> {
  try {
    await work(handle);
  } finally {
    await handle.close();
  }
}
