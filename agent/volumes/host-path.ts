/** Checks the types of hostPath volumes. The errors are the kubelet's. */
import type { Stats } from 'node:fs';
import { mkdir, stat, writeFile, chmod } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Checks the path of a `hostPath` volume against its type, and creates a missing path for `DirectoryOrCreate`, `FileOrCreate`
 * and an empty type. Throws the kubelet's error if something else is there, or if there is no such type.
 */
export async function checkHostPath(path: string, type: string): Promise<void> {
  const found = await statIfThere(path);
  const fail = (what: string): never => {
    throw new Error(`hostPath type check failed: ${path} is not a ${what}`);
  };
  switch (type) {
    case '':
      // Nothing is checked. A missing path becomes a directory.
      if (found === undefined) await mkdir(path, { recursive: true, mode: 0o755 });
      return;
    case 'DirectoryOrCreate':
      if (found === undefined) await makeDirectory(path);
      else if (!found.isDirectory()) fail('directory');
      return;
    case 'Directory':
      if (found?.isDirectory() !== true) fail('directory');
      return;
    case 'FileOrCreate':
      if (found === undefined) await makeFile(path);
      else if (!found.isFile()) fail('file');
      return;
    case 'File':
      if (found?.isFile() !== true) fail('file');
      return;
    case 'Socket':
      if (found?.isSocket() !== true) fail('socket file');
      return;
    case 'CharDevice':
      if (found?.isCharacterDevice() !== true) fail('character device');
      return;
    case 'BlockDevice':
      if (found?.isBlockDevice() !== true) fail('block device');
      return;
    default:
      throw new Error(`${type} is an invalid volume type`);
  }
}

/** Returns what is at the path, or `undefined` if nothing is there. */
export function statIfThere(path: string): Promise<Stats | undefined> {
  return stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
    throw error;
  });
}

async function makeDirectory(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o755 });
  await chmod(path, 0o755);
}

/** Creates the file, but not its directory. */
async function makeFile(path: string): Promise<void> {
  await stat(dirname(path));
  await writeFile(path, '', { flag: 'a', mode: 0o644 });
}
