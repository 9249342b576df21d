/**
 * Binds sub-paths of volumes so that a container cannot use them against the host: links are resolved inside the volume only,
 * every part is opened through the descriptor of its parent, and the bind uses the opened descriptor instead of a path that
 * could change meanwhile.
 */
import { type FileHandle, mkdir, realpath, writeFile } from 'node:fs/promises';
import { dirname, join, posix } from 'node:path';
import { Directory, ifMissing, inDirectory } from '../base/files/beneath.ts';
import type { Mounter } from './mounter.ts';
import { quoteText } from '../../api/meta/quote.ts';

/**
 * Binds `volumePath/subPath` at `target` and returns the target. Missing directories of the sub-path get the volume's mode.
 * Throws if the sub-path leads out of the volume.
 */
export async function bindSubPath(
  volumePath: string,
  subPath: string,
  target: string,
  mounter: Mounter,
): Promise<string> {
  const found = await openInside(volumePath, subPath);
  try {
    const kind = await found.stat();
    const points = await mounter.list();
    if (points.some((point) => point.path === target)) await mounter.unmount(target);
    await mkdir(dirname(target), { recursive: true, mode: 0o750 });
    if (kind.isDirectory()) await mkdir(target, { recursive: true, mode: 0o750 });
    else await writeFile(target, '', { flag: 'a', mode: 0o640 });
    await mounter.mount({
      source: `/proc/${process.pid}/fd/${found.fd}`,
      target,
      options: ['bind'],
      exactSource: true,
    });
    return target;
  } finally {
    await found.close();
  }
}

/** Returns the text of a file of a volume. Rejects if it has more than `maxBytes` or is outside of the volume. */
export async function readInside(volumePath: string, path: string, maxBytes: number): Promise<string> {
  const root = await realpath(volumePath);
  const parts = await resolveInside(root, path);
  const name = parts.at(-1);
  if (name === undefined) throw new Error(`${quoteText(path)} is not a file`);
  const directory = await Directory.beneath(root, parts.slice(0, -1));
  try {
    return (await directory.readFile(name, maxBytes)).toString('utf8');
  } finally {
    await directory.close();
  }
}

/** The maximum number of symbolic links in a sub-path. */
const MAX_LINKS = 255;

/**
 * Returns the parts of the sub-path relative to the root, with links resolved. Throws if it leads out of the volume, or through
 * more than `MAX_LINKS` links.
 */
async function resolveInside(root: string, subPath: string): Promise<readonly string[]> {
  let pending = subPath.split('/').filter((part) => part !== '' && part !== '.');
  const resolved: string[] = [];
  let links = 0;
  while (pending.length > 0) {
    const part = pending.shift() ?? '';
    if (part === '..') {
      if (resolved.length === 0) throw new Error(`subPath ${quoteText(subPath)} leads out of its volume`);
      resolved.pop();
      continue;
    }
    const link = await linkOf(join(root, ...resolved), part);
    if (link === undefined) {
      resolved.push(part);
      continue;
    }
    links += 1;
    if (links > MAX_LINKS) throw new Error(`subPath ${quoteText(subPath)} has too many links`);
    if (posix.isAbsolute(link)) {
      const inside = posix.relative(root, link);
      if (inside === '..' || inside.startsWith('../'))
        throw new Error(`subPath ${quoteText(subPath)} is a link out of its volume`);
      resolved.length = 0;
      pending = [...inside.split('/').filter((piece) => piece !== ''), ...pending];
    } else {
      pending = [...link.split('/').filter((piece) => piece !== '' && piece !== '.'), ...pending];
    }
  }
  return resolved;
}

/** Returns the target of a link. Returns `undefined` if nothing or no link has the name, or if it cannot be read. */
async function linkOf(directory: string, name: string): Promise<string | undefined> {
  // The entry is checked when it is opened.
  return inDirectory(directory, (opened) => opened.readlink(name)).catch(() => undefined);
}

/** Opens the sub-path. Missing directories are created with the mode of the volume. */
async function openInside(volumePath: string, subPath: string): Promise<FileHandle> {
  const root = await realpath(volumePath);
  const parts = await resolveInside(root, subPath);
  let directory = await Directory.open(root);
  try {
    const mode = (await directory.stat()).mode & 0o7777;
    for (const part of parts.slice(0, -1)) {
      const inner = await directory.make(part, mode);
      await directory.close();
      directory = inner;
    }
    const last = parts.at(-1);
    if (last === undefined) return await directory.pin();
    const found = await directory.pin(last).catch(ifMissing);
    if (found === undefined) {
      const created = await directory.make(last, mode);
      await directory.close();
      directory = created;
      return await directory.pin();
    }
    if (!(await found.stat()).isSymbolicLink()) return found;
    await found.close();
    throw new Error(`${quoteText(last)} became a link while it was opened`);
  } finally {
    await directory.close();
  }
}
