/**
 * Reads the entries of a tar archive from an untrusted source, in their order. Every path and every link target is validated
 * before the entry is returned: nothing leads out of the archive, and there are only files, directories and links. Nothing is
 * written, and contents are streams. Backups and image archives use it.
 */
import { quoteText } from '../meta/quote.ts';
import type { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/** An entry with a valid path. */
export interface TarEntry {
  /** The parts of the path without `.`, `..` and empty parts. It is empty for the root of the archive. */
  readonly parts: readonly string[];
  readonly type: 'file' | 'directory' | 'link';
  /** The fields of the header. */
  readonly sizeBytes: number;
  readonly mode: number;
  /** The caller may leave it unread. */
  readonly content: AsyncIterable<Buffer>;
}

const MAX_ENTRIES = 100_000;
const MAX_PATH_SHOWN = 100;

/** Rejects with a one-line message if the archive is truncated, damaged, or has a forbidden entry. */
export async function* tarEntries(source: Readable, decompress?: Transform): AsyncGenerator<TarEntry, void, undefined> {
  const { extract } = await import('tar-stream');
  const reader = extract();
  const piped = decompress === undefined ? pipeline(source, reader) : pipeline(source, decompress, reader);
  // A consumer that stops early, or an error of the reader, also ends the pipeline. The loop below has thrown by then.
  const whole = piped.then(
    () => undefined,
    (error: unknown) => error,
  );
  let count = 0;
  for await (const entry of reader) {
    count += 1;
    if (count > MAX_ENTRIES) throw new Error(`it has more than ${MAX_ENTRIES} entries`);
    const { name, type, linkname, size = 0, mode = 0 } = entry.header;
    const parts = partsInside(name, []);
    // The target of a hard link is relative to the root of the archive, and that of a symbolic link is relative to the link.
    if (type === 'link') partsInside(linkname ?? '', []);
    else if (type === 'symlink') partsInside(linkname ?? '', parts.slice(0, -1));
    else if (type !== 'file' && type !== 'contiguous-file' && type !== 'directory')
      throw new Error(`its entry ${shown(name)} is a ${type ?? 'thing of an unknown type'}`);
    yield {
      parts,
      type: type === 'directory' ? 'directory' : type === 'link' || type === 'symlink' ? 'link' : 'file',
      sizeBytes: size,
      mode,
      content: bytesOf(entry, whole),
    };
    entry.resume();
  }
  const error = await whole;
  if (error !== undefined) throw error;
}

/**
 * Yields the content of an entry. It is a generator, because pipelines of Node.js do not notice that a stream of another
 * library ends early. The stream only reports that it was destroyed, so the error comes from what ended the archive.
 */
async function* bytesOf(
  entry: AsyncIterable<unknown>,
  whole: Promise<unknown>,
): AsyncGenerator<Buffer, void, undefined> {
  try {
    for await (const chunk of entry) yield chunk as Buffer;
  } catch (error) {
    throw (await whole) ?? error;
  }
}

/** Throws if the path, which begins in the directory `base`, leads out of the archive at any point. */
function partsInside(path: string, base: readonly string[]): readonly string[] {
  const parts = [...base];
  if (path.startsWith('/')) throw new Error(`its entry ${shown(path)} has an absolute path`);
  for (const part of path.split('/')) {
    if (part === '..' && parts.pop() === undefined)
      throw new Error(`its entry ${shown(path)} leads out of the archive`);
    if (part !== '' && part !== '.' && part !== '..') parts.push(part);
  }
  return parts;
}

function shown(path: string): string {
  return quoteText(path.slice(0, MAX_PATH_SHOWN));
}
