/**
 * Validates an image archive before a container runtime reads it. Rejects an archive that is truncated, has paths outside of
 * itself, or has entries other than files, directories and links. Finds the names of the images.
 */
import { createReadStream } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import type { Transform } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { tarEntries, type TarEntry } from '../../../api/codec/tar-entries.ts';

const MAX_MANIFEST_BYTES = 1 << 20;
/** Matches a text with the characters of an image name. Does not match an option of a command. */
const REFERENCE = /^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,1023}$/;

const COMPRESSIONS: readonly { readonly magic: string; readonly decompress: () => Transform }[] = [
  { magic: '1f8b', decompress: () => createGunzip() },
  { magic: '28b52ffd', decompress: () => createZstdDecompress() },
];

/** Returns the references of the archive's images. Rejects with a one-line reason if the archive is invalid. */
export async function archiveReferences(archive: string): Promise<readonly string[]> {
  // A reader of a FIFO would wait for a writer.
  if (!(await stat(archive)).isFile()) throw new Error(`${archive} is not a regular file`);
  const magic = await magicOf(archive);
  const compression = COMPRESSIONS.find((candidate) => magic.startsWith(candidate.magic));
  try {
    return await referencesOf(tarEntries(createReadStream(archive), compression?.decompress()));
  } catch (error) {
    const why = error instanceof Error ? error.message.split('\n')[0] : String(error);
    throw new Error(`${archive} cannot be read as an image archive: ${why}`, { cause: error });
  }
}

/** Returns the first four bytes of the file in hexadecimal digits. */
async function magicOf(path: string): Promise<string> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(4), 0, 4, 0);
    return buffer.toString('hex', 0, bytesRead);
  } finally {
    await file.close();
  }
}

async function referencesOf(entries: AsyncIterable<TarEntry>): Promise<readonly string[]> {
  let references: readonly string[] | undefined;
  let isLayout = false;
  for await (const { parts, type, sizeBytes, content } of entries) {
    const path = parts.join('/');
    if (path === 'index.json') isLayout = true;
    if (path !== 'manifest.json') continue;
    if (references !== undefined) throw new Error('it has a second manifest.json');
    if (type !== 'file') throw new Error('its manifest.json is not a regular file');
    if (sizeBytes > MAX_MANIFEST_BYTES) throw new Error(`its manifest.json has more than ${MAX_MANIFEST_BYTES} bytes`);
    const chunks: Buffer[] = [];
    for await (const chunk of content) chunks.push(chunk);
    references = tagsOf(Buffer.concat(chunks).toString());
  }
  if (references === undefined && !isLayout) throw new Error('it has neither a manifest.json nor an index.json');
  return references ?? [];
}

function tagsOf(text: string): readonly string[] {
  const manifest: unknown = JSON.parse(text);
  if (!Array.isArray(manifest)) throw new Error('its manifest.json is no list');
  return manifest.flatMap((entry: unknown) => {
    const tags: unknown = typeof entry === 'object' && entry !== null && 'RepoTags' in entry ? entry.RepoTags : null;
    if (tags === null) return [];
    if (!Array.isArray(tags) || !tags.every((tag) => typeof tag === 'string' && REFERENCE.test(tag)))
      throw new Error('its manifest.json has a name that is no name of an image');
    return tags as string[];
  });
}
