/**
 * Entries of a tar archive that somebody else made, in their order. Every path and every target of a link is checked before the
 * entry is handed out: nothing leads out of the archive, and there are only files, directories and links. Nothing is written;
 * contents are streams. Used for backups and image archives.
 */
import { quoteText } from '../meta/quote.ts';
import type { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

export interface TarEntry {
  /** Without `.`, `..`, or empty parts. Empty for the root of the archive. */
  readonly parts: readonly string[];
  readonly type: 'file' | 'directory' | 'link';
  /** The fields of the header. */
  readonly sizeBytes: number;
  readonly mode: number;
  /** May be left unread. */
  readonly content: AsyncIterable<Buffer>;
}

const MAX_ENTRIES = 100_000;
const MAX_PATH_SHOWN = 100;

/** Rejects, with a message of one line, where the archive is truncated, damaged, or has an entry that it must not have. */
export async function* tarEntries(source: Readable, decompress?: Transform): AsyncGenerator<TarEntry, void, undefined> {
  const { extract } = await import('tar-stream');
  const reader = extract();
  const piped = decompress === undefined ? pipeline(source, reader) : pipeline(source, decompress, reader);
  // Whoever stops early, or an error of the reader, ends the pipeline too: the loop below has thrown then.
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
    // Targets of hard links begin at the root of the archive, those of symbolic links beside the link.
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
 * A generator: pipelines of Node.js do not notice that a stream of another library ends early. The stream itself only says that
 * it was destroyed; what ended the archive says why.
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

/** Throws where the path, which begins in the directory of `base`, leads out of the archive anywhere on its way. */
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
