/**
 * Reads files at paths that the host's administrator or the agent itself writes. Links are followed, because the files of a
 * directory may be links. What is not a regular file is never opened: a FIFO would block a thread until a process writes to
 * it, and a device may act when it is opened.
 */
import { type FileHandle, open } from 'node:fs/promises';
import { constants } from 'node:fs';
import { descriptorPath, IrregularFileError, readBounded, O_PATH } from './beneath.ts';
import { quoteText } from '../../../api/meta/quote.ts';

/**
 * Reads a regular file. Rejects with `IrregularFileError` for anything else, and with an error if it is larger than
 * `maxBytes`.
 */
export async function readRegularFile(path: string, maxBytes: number): Promise<Buffer> {
  return (await readWithOwner(path, maxBytes)).content;
}

async function readWithOwner(
  path: string,
  maxBytes: number,
): Promise<{ readonly content: Buffer; readonly uid: number }> {
  // The descriptor refers to the file without opening it, so that nothing can take its place after the check.
  return using(await open(path, O_PATH), async (pinned) => {
    const found = await pinned.stat();
    if (!found.isFile()) throw new IrregularFileError(`${quoteText(path)} is not a regular file`);
    const flags = constants.O_RDONLY | constants.O_NONBLOCK;
    const content = await using(await open(descriptorPath(pinned), flags), (file) =>
      readBounded(file, { name: path, maxBytes }),
    );
    return { content, uid: found.uid };
  });
}

/** The maximum size of a file that the agent itself has written. */
const MAX_OWN_BYTES = 16 << 20;

/** Resolves to the text of a small file that the agent itself has written. Rejects like `readRegularFile`. */
export async function readOwnFile(path: string): Promise<string> {
  return (await readRegularFile(path, MAX_OWN_BYTES)).toString('utf8');
}

/** Resolves to the text of such a file and to the user id of its owner. Rejects like `readRegularFile`. */
export async function readOwnedFile(path: string): Promise<{ readonly text: string; readonly uid: number }> {
  const { content, uid } = await readWithOwner(path, MAX_OWN_BYTES);
  return { text: content.toString('utf8'), uid };
}

async function using<T>(file: FileHandle, work: (file: FileHandle) => Promise<T>): Promise<T> {
  try {
    return await work(file);
  } finally {
    await file.close();
  }
}
