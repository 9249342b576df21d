/**
 * Sub-paths of volumes that a container cannot turn against the host: every part is opened through the descriptor of its
 * parent without following links that lead out, and what is bound is the opened descriptor, not a path that could change
 * meanwhile. Plain Node has no openat(2); `/proc/self/fd/<n>/<name>` is the same.
 */
import { constants } from 'node:fs';
import {
  chmod,
  type FileHandle,
  lstat,
  mkdir,
  open,
  readFile,
  readlink,
  realpath,
  stat,
  writeFile,
} from 'node:fs/promises';
import { dirname, join, posix } from 'node:path';
import type { Mounter } from './mounter.ts';

const O_PATH = 0o10000000;

/** Binds `volumePath/subPath` at `target` and gives the target. Missing directories of the sub-path are made with the volume's mode. */
export async function bindSubPath(
  volumePath: string,
  subPath: string,
  target: string,
  mounter: Mounter,
): Promise<string> {
  const root = await realpath(volumePath);
  const relative = await resolveInside(root, subPath);
  const handle = await openInside(root, relative, { create: true });
  try {
    const kind = await stat(`/proc/self/fd/${handle.fd}`);
    const points = await mounter.list();
    if (points.some((point) => point.path === target)) await mounter.unmount(target);
    await mkdir(dirname(target), { recursive: true, mode: 0o750 });
    if (kind.isDirectory()) await mkdir(target, { recursive: true, mode: 0o750 });
    else await writeFile(target, '', { flag: 'a', mode: 0o640 });
    await mounter.mount({
      source: `/proc/${process.pid}/fd/${handle.fd}`,
      target,
      options: ['bind'],
      exactSource: true,
    });
    return target;
  } finally {
    await handle.close();
  }
}

/** The text of a file of a volume, of `maxBytes` at most; nothing outside of the volume is ever read. */
export async function readInside(volumePath: string, path: string, maxBytes: number): Promise<string> {
  const root = await realpath(volumePath);
  const handle = await openInside(root, await resolveInside(root, path), { create: false });
  try {
    const link = `/proc/self/fd/${handle.fd}`;
    const found = await stat(link);
    if (!found.isFile()) throw new Error(`${JSON.stringify(path)} is not a file`);
    if (found.size > maxBytes) throw new Error(`${JSON.stringify(path)} has more than ${maxBytes} bytes`);
    return await readFile(link, 'utf8');
  } finally {
    await handle.close();
  }
}

/** The sub-path with its links followed, still relative to the root. Throws where it leads out of the volume. */
async function resolveInside(root: string, subPath: string): Promise<string> {
  let pending = subPath.split('/').filter((part) => part !== '' && part !== '.');
  const done: string[] = [];
  let links = 0;
  while (pending.length > 0) {
    const part = pending.shift() ?? '';
    if (part === '..') {
      if (done.length === 0) throw new Error(`subPath ${JSON.stringify(subPath)} leads out of its volume`);
      done.pop();
      continue;
    }
    const at = join(root, ...done, part);
    const link = await readlink(at).catch(() => undefined);
    if (link === undefined) {
      done.push(part);
      continue;
    }
    links += 1;
    if (links > 255) throw new Error(`subPath ${JSON.stringify(subPath)} has too many links`);
    if (posix.isAbsolute(link)) {
      const inside = posix.relative(root, link);
      if (inside === '..' || inside.startsWith('../'))
        throw new Error(`subPath ${JSON.stringify(subPath)} is a link out of its volume`);
      done.length = 0;
      pending = [...inside.split('/').filter((piece) => piece !== ''), ...pending];
    } else {
      pending = [...link.split('/').filter((piece) => piece !== '' && piece !== '.'), ...pending];
    }
  }
  return done.join('/');
}

async function openInside(root: string, relative: string, { create }: { create: boolean }): Promise<FileHandle> {
  const rootStat = await lstat(root);
  let handle = await open(root, O_PATH | constants.O_DIRECTORY);
  try {
    for (const part of relative.split('/').filter((piece) => piece !== '')) {
      const at = `/proc/self/fd/${handle.fd}/${part}`;
      let next: FileHandle;
      try {
        next = await openPart(at);
      } catch (error) {
        if (!create || (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
        await mkdir(at, { mode: rootStat.mode & 0o7777 }).catch((problem: NodeJS.ErrnoException) => {
          if (problem.code !== 'EEXIST') throw problem;
        });
        next = await openPart(at);
        // The mask of this process is not the volume's.
        await chmod(`/proc/self/fd/${next.fd}`, rootStat.mode & 0o7777);
      }
      await handle.close();
      handle = next;
    }
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** A link that took the place of a checked part is opened as the link itself, and refused. */
async function openPart(at: string): Promise<FileHandle> {
  const handle = await open(at, O_PATH | constants.O_NOFOLLOW);
  const kind = await handle.stat();
  if (kind.isSymbolicLink()) {
    await handle.close();
    throw new Error(`${at} became a link while it was opened`);
  }
  return handle;
}
