/**
 * Finds and reads the manifests of a folder. Write access to it gives every right in the cluster, so folders and files must
 * belong to root or to the user of this process, and others must not be able to write to them. Manifests are regular files or
 * links to them; number, size and depth are bounded. A folder with a kustomization is one source, which others read.
 */
import { createHash } from 'node:crypto';
import { type BigIntStats, constants } from 'node:fs';
import { lstat, open, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { quoteText } from '../../../api/meta/quote.ts';

/** The maximum numbers of manifests, of folders and of files of a kustomization, and of folders within each other. */
const MAX_FILES = 1_000;
const MAX_DEPTH = 8;
/** The maximum size of a file. A larger one is a fault and is not read. */
export const MAX_FILE_BYTES = 8 * 1024 * 1024;
const MANIFEST = /\.(?:ya?ml|json)$/;
const KUSTOMIZATION = /^(?:kustomization\.ya?ml|Kustomization)$/;
/** The suffix of the name of a file beside a manifest, which leaves what the manifest applied as it is. */
const SKIP = '.skip';

/** A manifest, or a folder with a kustomization. */
export interface ManifestSource {
  readonly path: string;
  readonly isKustomization: boolean;
  /** Differs after each change of content or metadata. */
  readonly signature: string;
  readonly isSkipped: boolean;
}

/** The state of a folder at one moment. */
export interface FolderScan {
  readonly sources: readonly ManifestSource[];
  /** The folder itself and the folders below that are read; they are watched. */
  readonly folders: readonly string[];
  /** Why something is not read, by its path. What it applied before stays. */
  readonly faults: ReadonlyMap<string, string>;
  /** Whether the folder exists and could be listed. If it is missing, nothing is known about what it should contain. */
  readonly isComplete: boolean;
  /** The filesystem of the folder: another one may be mounted there, or not be mounted. */
  readonly device: bigint;
}

interface ScanProgress {
  readonly sources: ManifestSource[];
  readonly folders: string[];
  readonly faults: Map<string, string>;
  device: bigint;
}

/** Reads the manifests of a folder. What exists and cannot be read is among the faults. */
export async function scanFolder(path: string): Promise<FolderScan> {
  const found: ScanProgress = { sources: [], folders: [], faults: new Map(), device: 0n };
  const isComplete = await scan(path, 0, found);
  return { ...found, isComplete };
}

/** Returns whether the folder could be listed. */
async function scan(folder: string, depth: number, found: ScanProgress): Promise<boolean> {
  let names: string[];
  try {
    const stats = await stat(folder, { bigint: true });
    const fault = trustFault(stats);
    if (fault !== undefined) throw new Error(fault);
    if (depth === 0) found.device = stats.dev;
    names = (await readdir(folder)).toSorted();
  } catch (error) {
    if (depth > 0 || (error as NodeJS.ErrnoException).code !== 'ENOENT') found.faults.set(folder, messageOf(error));
    return false;
  }
  found.folders.push(folder);
  if (names.some((name) => KUSTOMIZATION.test(name))) {
    await addKustomization(folder, found);
    return true;
  }
  const present = new Set(names);
  for (const name of names) {
    if (name.startsWith('.') || name.endsWith(SKIP)) continue;
    const path = join(folder, name);
    try {
      const stats = await stat(path, { bigint: true });
      if (stats.isDirectory()) {
        if ((await lstat(path)).isSymbolicLink()) throw new Error('A link to a folder is not followed');
        if (found.folders.length >= MAX_FILES) throw new Error(`There are more than ${MAX_FILES} folders`);
        if (depth >= MAX_DEPTH) throw new Error(`Folders are nested deeper than ${MAX_DEPTH}`);
        await scan(path, depth + 1, found);
      } else if (MANIFEST.test(name)) addFile(path, stats, present.has(name + SKIP), found);
    } catch (error) {
      // The file may have been removed since the folder was listed. A link that leads nowhere is the same for readers.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') found.faults.set(path, messageOf(error));
    }
  }
  return true;
}

function addFile(path: string, stats: BigIntStats, isSkipped: boolean, found: ScanProgress): void {
  if (!stats.isFile()) throw new Error('Not a regular file');
  const fault = trustFault(stats);
  if (fault !== undefined) throw new Error(fault);
  if (stats.size > MAX_FILE_BYTES) throw new Error(`Larger than ${MAX_FILE_BYTES} bytes`);
  if (found.sources.length >= MAX_FILES) throw new Error(`The folder has more than ${MAX_FILES} manifests`);
  found.sources.push({ path, isKustomization: false, signature: signatureOf(stats), isSkipped });
}

/** Adds a kustomization. Its signature covers everything below its folder that is not hidden. */
async function addKustomization(folder: string, found: ScanProgress): Promise<void> {
  const hash = createHash('sha256');
  let count = 0;
  const visit = async (path: string, depth: number): Promise<void> => {
    const stats = await stat(path, { bigint: true });
    const fault = trustFault(stats);
    if (fault !== undefined) throw new Error(`${path}: ${fault}`);
    if ((count += 1) > MAX_FILES) throw new Error(`The folder has more than ${MAX_FILES} files`);
    hash.update(`${path}\0${signatureOf(stats)}\0`);
    if (!stats.isDirectory()) return;
    if (depth > MAX_DEPTH) throw new Error(`Folders are nested deeper than ${MAX_DEPTH}`);
    if (path !== folder) found.folders.push(path);
    for (const name of (await readdir(path)).toSorted())
      if (!name.startsWith('.')) await visit(join(path, name), depth + 1);
  };
  try {
    await visit(folder, 0);
    const signature = hash.digest('hex');
    found.sources.push({ path: folder, isKustomization: true, signature, isSkipped: false });
  } catch (error) {
    found.faults.set(folder, messageOf(error));
  }
}

/** Returns why others than root and the user of this process might have written it, or `undefined`. */
function trustFault({ uid, mode }: BigIntStats): string | undefined {
  if (uid !== 0n && uid !== BigInt(process.geteuid?.() ?? 0))
    return `It belongs to user ${uid}, and not to root or the user of the control plane`;
  if ((mode & 0o022n) !== 0n)
    return `Others may write to it (mode 0${(mode & 0o777n).toString(8)}); chmod go-w makes it usable`;
  return undefined;
}

function signatureOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join(':');
}

/** Reads a file that has this signature before and after. Resolves to `undefined` if it has changed. */
export async function readSource({ path, signature }: ManifestSource): Promise<Buffer | undefined> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  try {
    const before = await file.stat({ bigint: true });
    // The size is bounded by the scan that computed the signature, and so are type, owner and mode.
    if (signatureOf(before) !== signature) return undefined;
    const content = Buffer.alloc(Number(before.size));
    let length = 0;
    while (length < content.length) {
      const { bytesRead } = await file.read(content, length, content.length - length, length);
      if (bytesRead === 0) return undefined;
      length += bytesRead;
    }
    return signatureOf(await file.stat({ bigint: true })) === signature ? content : undefined;
  } finally {
    await file.close();
  }
}

function messageOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'EACCES') return 'The user of the control plane may not read it';
  return code === undefined ? message : `It cannot be read: ${quoteText(message)}`;
}
