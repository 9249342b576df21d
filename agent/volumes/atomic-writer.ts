/**
 * Writes a set of files that a container sees change all at once: the files stand in a time-stamped directory, `..data`
 * points at it, and what users see are links through `..data`. A new set is swapped in by renaming that one link.
 */
import { randomBytes } from 'node:crypto';
import {
  chmod,
  chown,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  symlink,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';

export interface PayloadFile {
  readonly content: Buffer;
  /** Permission bits. */
  readonly mode: number;
  /** Owner where the volume asks for one (service-account tokens). */
  readonly uid?: number;
}

/** By path relative to the volume, with `/` between parts; never `..`. */
export type Payload = ReadonlyMap<string, PayloadFile>;

const DATA_LINK = '..data';
/** Directories of this writer: the one of before, and what a killed writer left. */
const STAMPED = /^\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.[0-9a-f]+$/;

/** Brings the directory to the payload; resolves to whether anything changed. `gid` owns the files where it is set. */
export async function writePayload(
  directory: string,
  payload: Payload,
  gid: number | undefined,
  now: Date,
): Promise<boolean> {
  for (const path of payload.keys()) checkPath(path);
  const current = await readlink(join(directory, DATA_LINK)).catch(absent);
  if (current !== undefined && (await isCurrent(join(directory, current), payload, gid))) {
    // A writer that was killed after the swap may have left the links behind.
    await linkUserVisible(directory, payload);
    return false;
  }
  const stamp = now.toISOString().replace(/[-:T]/g, '_').slice(0, 19);
  const name = `..${stamp}.${randomBytes(4).toString('hex')}`;
  await writeTree(join(directory, name), payload, gid);
  const link = join(directory, `${DATA_LINK}_tmp`);
  await rm(link, { force: true });
  await symlink(name, link);
  await rename(link, join(directory, DATA_LINK));
  await linkUserVisible(directory, payload);
  await giveToGroup(directory, gid);
  for (const entry of await readdir(directory))
    if (entry !== name && STAMPED.test(entry)) await rm(join(directory, entry), { recursive: true, force: true });
  return true;
}

function checkPath(path: string): void {
  const parts = path.split('/');
  if (path === '' || path.startsWith('/') || parts.includes('..') || (parts[0] ?? '').startsWith('..')) {
    throw new Error(`the path ${JSON.stringify(path)} is not allowed in a volume`);
  }
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code === 'ENOENT') return undefined;
  throw error;
}

/** With a group of its own the group may read every file, and enter and list every directory. */
function fileMode(file: PayloadFile, gid: number | undefined): number {
  return gid === undefined ? file.mode : file.mode | 0o440;
}

async function giveToGroup(directory: string, gid: number | undefined): Promise<void> {
  if (gid === undefined) return;
  const { mode, uid } = await lstat(directory);
  await chown(directory, uid, gid);
  await chmod(directory, (mode & 0o7777) | 0o2550);
}

async function isCurrent(directory: string, payload: Payload, gid: number | undefined): Promise<boolean> {
  const found = await listFiles(directory, '');
  if (found.length !== payload.size) return false;
  for (const path of found) {
    const file = payload.get(path);
    if (file === undefined) return false;
    const stat = await lstat(join(directory, path));
    if ((stat.mode & 0o7777) !== fileMode(file, gid)) return false;
    if (!(await readFile(join(directory, path))).equals(file.content)) return false;
  }
  return true;
}

async function listFiles(directory: string, prefix: string): Promise<string[]> {
  const entries = await readdir(join(directory, prefix), { withFileTypes: true }).catch(absent);
  const files: string[] = [];
  for (const entry of entries ?? []) {
    const path = prefix === '' ? entry.name : `${prefix}/${entry.name}`;
    if (entry.isDirectory()) files.push(...(await listFiles(directory, path)));
    else files.push(path);
  }
  return files;
}

async function writeTree(directory: string, payload: Payload, gid: number | undefined): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o755 });
  await chmod(directory, 0o755);
  await giveToGroup(directory, gid);
  for (const [path, file] of payload) {
    const target = join(directory, path);
    const parts = path.split('/').slice(0, -1);
    for (const depth of parts.keys()) {
      const parent = join(directory, ...parts.slice(0, depth + 1));
      await mkdir(parent, { recursive: true, mode: 0o755 });
      await chmod(parent, 0o755);
      await giveToGroup(parent, gid);
    }
    await writeFile(target, file.content, { mode: 0o600 });
    if (gid !== undefined || file.uid !== undefined) await chown(target, file.uid ?? 0, gid ?? 0);
    await chmod(target, fileMode(file, gid));
  }
}

/** `undefined` where there is nothing, or what is there is no link. */
async function linkTarget(path: string): Promise<string | undefined> {
  return readlink(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'EINVAL') return undefined;
    throw error;
  });
}

async function linkUserVisible(directory: string, payload: Payload): Promise<void> {
  const wanted = new Set([...payload.keys()].map((path) => path.split('/')[0] ?? path));
  for (const entry of await readdir(directory)) {
    if (entry.startsWith('..') || wanted.has(entry)) continue;
    // Only links of this writer: a mount below the volume leaves a directory of its own here.
    if ((await linkTarget(join(directory, entry))) === `${DATA_LINK}/${entry}`) await unlink(join(directory, entry));
  }
  for (const name of wanted) {
    const target = `${DATA_LINK}/${name}`;
    const existing = await linkTarget(join(directory, name));
    if (existing === target) continue;
    if (existing !== undefined) await unlink(join(directory, name));
    await symlink(target, join(directory, name));
  }
}
