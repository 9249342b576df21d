/**
 * Writes and reads the archive of a backup: a compressed tar of `backup.json`, the storage, and the control plane's
 * certificates and keys. Reading accepts exactly these regular files, and directories, and refuses every other archive, so that
 * a hostile archive cannot write outside of the directory.
 */
import { toError } from '../../api/meta/error-message.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { createReadStream, createWriteStream } from 'node:fs';
import { chmod, mkdir, readdir, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Pack } from 'tar-stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';
import { tarEntries } from '../../api/codec/tar-entries.ts';

/** The size limit of each file except the storage. */
const MAX_FILE_BYTES = 1 << 20;
/** The maximum number of files and directories of a backup. */
const MAX_ENTRIES = 1000;

interface BackupLayout {
  /** Path of the storage below the directory. */
  readonly storage: string;
  /** The names of the other files and directories at the top, each of which may be missing. */
  readonly otherNames: readonly string[];
}

/** Writes the files of the directories to a new file. Each path is relative to its directory. */
export async function writeBackupArchive(
  file: string,
  sources: readonly { readonly directory: string; readonly path: string }[],
): Promise<void> {
  const { pack } = await import('tar-stream');
  const archive = pack();
  const writing = pipeline(archive, createGzip(), createWriteStream(file, { flags: 'wx', mode: 0o600, flush: true }));
  const adding = (async (): Promise<void> => {
    for (const { directory, path } of sources) await addEntry(archive, directory, path);
    archive.finalize();
  })().catch((error: unknown) => {
    archive.destroy(toError(error));
    throw error;
  });
  await Promise.all([adding, writing]);
}

/** Adds a file, or a directory with its content. Links are followed, because an archive with links would not be read. */
async function addEntry(archive: Pack, directory: string, path: string): Promise<void> {
  const source = join(directory, path);
  const found = await stat(source);
  const { size, mode, mtime } = found;
  if (found.isDirectory()) {
    archive.entry({ name: `${path}/`, type: 'directory', mode: mode & 0o777, mtime });
    for (const name of await readdir(source)) await addEntry(archive, directory, `${path}/${name}`);
    return;
  }
  const entry = archive.entry({ name: path, size, mode: mode & 0o777, mtime });
  await pipeline(size === 0 ? Readable.from([]) : createReadStream(source, { end: size - 1 }), entry);
}

/**
 * Extracts the archive into an empty directory. Rejects with a one-line error if the archive is damaged, exceeds a limit or has
 * an entry that is not in the layout. Files that are missing are no error.
 */
export async function readBackupArchive(file: string, directory: string, layout: BackupLayout): Promise<void> {
  if (!(await stat(file)).isFile()) throw new Error('it is not a regular file');
  let count = 0;
  for await (const { parts, type, sizeBytes, mode, content } of tarEntries(createReadStream(file), createGunzip())) {
    const path = parts.join('/');
    count += 1;
    if (count > MAX_ENTRIES) throw new Error(`it has more than ${MAX_ENTRIES} entries`);
    if (!isInLayout(parts, layout))
      throw new Error(`it has an entry ${quoteText(path.slice(0, 100))}, which no backup has`);
    if (type === 'link') throw new Error(`its entry ${quoteText(path)} is a link`);
    const target = join(directory, path);
    await mkdir(type === 'directory' ? target : join(target, '..'), { recursive: true, mode: 0o700 });
    if (type === 'directory') continue;
    await checkSize(path, sizeBytes, { directory, isStorage: path === layout.storage });
    await pipeline(content, createWriteStream(target, { flags: 'wx', mode: 0o600 }));
    // Files from an archive are never writable by others, and never have set-user-ID or set-group-ID.
    await chmod(target, mode & 0o644);
  }
}

function isInLayout(parts: readonly string[], { storage, otherNames }: BackupLayout): boolean {
  const path = parts.join('/');
  return storage === path || storage.startsWith(`${path}/`) || otherNames.includes(parts[0] ?? '');
}

async function checkSize(
  path: string,
  sizeBytes: number,
  { directory, isStorage }: { readonly directory: string; readonly isStorage: boolean },
): Promise<void> {
  if (!isStorage) {
    if (sizeBytes > MAX_FILE_BYTES) throw new Error(`its file ${path} has more than ${MAX_FILE_BYTES} bytes`);
    return;
  }
  const { bavail, bsize } = await statfs(directory);
  if (sizeBytes > bavail * bsize)
    throw new Error(`its storage has ${sizeBytes} bytes, and ${directory} has room for ${bavail * bsize}`);
}
