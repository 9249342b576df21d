/**
 * Reads the entries of a tar archive from an untrusted source, in their order. Every path and every link target is validated
 * before the entry is returned: nothing leads out of the archive, and there are only files, directories and links.
 */
import { quoteText } from '../meta/quote.ts';
import { pipeline, type Readable, type Transform } from 'node:stream';
import { tarHeaders } from './tar-reader.ts';

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

const MAX_PATH_SHOWN = 100;

/**
 * Yields the entries of an archive. Rejects with a one-line message if the archive is truncated, damaged, or has a forbidden
 * entry.
 */
export async function* tarEntries(source: Readable, decompress?: Transform): AsyncGenerator<TarEntry, void, undefined> {
  // An error of either stream also ends the reading of the last one, which throws it.
  const bytes = decompress === undefined ? source : pipeline(source, decompress, () => undefined);
  try {
    for await (const { name, type, linkname, sizeBytes, mode, content } of tarHeaders(bytes)) {
      const parts = partsInside(name, []);
      // The target of a hard link is relative to the root of the archive, and that of a symbolic link is relative to the link.
      if (type === 'link') partsInside(linkname, []);
      else if (type === 'symlink') partsInside(linkname, parts.slice(0, -1));
      else if (type !== 'file' && type !== 'directory')
        throw new Error(`its entry ${shown(name)} is a ${type === 'unknown' ? 'thing of an unknown type' : type}`);
      yield { parts, type: type === 'symlink' ? 'link' : type, sizeBytes, mode, content };
    }
  } finally {
    source.destroy();
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
