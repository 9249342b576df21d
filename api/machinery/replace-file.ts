/**
 * Replaces a file by renaming a complete draft over it: readers, also after a crash, find the old content or the new, never
 * a part. The draft stands beside the file under a random name with the suffix `.tmp` and is removed on failure.
 */
import { randomBytes } from 'node:crypto';
import { open, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';

/** What stands after the path of a file in the name of its draft. */
export const DRAFT_SUFFIX = /\.[0-9a-f]{12}\.tmp$/;

export interface ReplaceFileOptions {
  /** Permission bits of the new file, exactly: the process' umask does not apply. */
  readonly mode: number;
  /**
   * What survives a power cut once the promise resolves: `'durable'` (the default) the new content; `'content'` the old
   * content or the new, for callers that sync the folder once for many files (`syncFolder`); `'none'` perhaps neither, for
   * files that are rebuilt at the next start.
   */
  readonly sync?: 'durable' | 'content' | 'none';
}

/** Calls for one path must not overlap where their order matters. */
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

/** Makes renames, new names and removals in the folder survive a power cut, where the file system can sync folders. */
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
