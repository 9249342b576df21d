/**
 * Replaces a file by renaming a complete draft to its path. Readers find either the old content or the new content, also after
 * a crash. The draft is in the same folder under a random name with the suffix `.tmp`, and it is removed on failure.
 */
import { randomBytes } from 'node:crypto';
import { type FileHandle, lstat, open, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';

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

/** Calls for one path must not overlap if their order matters. */
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

/** Makes renames, new names and removals in the folder survive a power failure, if the file system can sync folders. */
export async function syncFolder(path: string): Promise<void> {
  await withHandle(await open(path, 'r'), async (folder) => {
    try {
      await folder.sync();
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EINVAL')) throw error;
    }
  });
}

async function withHandle(handle: FileHandle, work: (handle: FileHandle) => Promise<void>): Promise<void> {
  try {
    await work(handle);
  } finally {
    await handle.close();
  }
}
