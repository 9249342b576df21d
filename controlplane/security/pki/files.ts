/** Reads files of the PKI directory, and writes them atomically. Only the owner can read private keys. */
import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isDiskFull } from '../../../api/machinery/disk-full.ts';
import { makeFolder, replaceFile } from '../../../api/machinery/replace-file.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';

/** Writes a file and the directory above it. After a crash, the file has either the old or the new content. */
export async function writeFileAtomic(path: string, content: string, mode: number): Promise<void> {
  await makeFolder(dirname(path), 0o700);
  await replaceFile(path, content, { mode });
}

/**
 * Writes a file as `writeFileAtomic` does, for content that can be recreated. Resolves to false if the disk is full; the old
 * file then remains.
 */
export async function writeFileIfRoom(path: string, content: string, mode: number): Promise<boolean> {
  try {
    await writeFileAtomic(path, content, mode);
    return true;
  } catch (error) {
    if (isDiskFull(error)) return false;
    throw error;
  }
}

/** Runs a parser of the content of a file, and adds the name of the file to its error. */
export function parsed<T>(file: string, parse: () => T): T {
  try {
    return parse();
  } catch (cause) {
    throw new Error(`${file} cannot be read: ${errorMessage(cause)}`, { cause });
  }
}

/** Resolves to the content of a file, or to `undefined` if it does not exist. */
export async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}
