/**
 * Limits the sizes of folders by project quotas of their filesystem (ext4, XFS). Node.js has no ioctl(2) and quotactl(2),
 * so the programs `chattr`, `lsattr` (e2fsprogs) and `setquota` (quota) are run instead. A limit does not stop processes with
 * CAP_SYS_RESOURCE, nor users who may change the project of their files, as root of a container without a user namespace
 * may.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { realpath } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { promisify } from 'node:util';
import { hostMounts, mountOf, type MountPoint } from './mount-table.ts';

/** Limits of folders in bytes. Methods reject with what the tools write to standard error. */
export interface FolderLimits {
  /** Returns an empty string if folders below this existing one can be limited, else the reason. Changes nothing. */
  problem(root: string): Promise<string>;
  /** Limits a folder, or changes its limit. Files that exist already do not count. */
  limit(folder: string, bytes: bigint): Promise<void>;
  /** Removes the limit of a folder, if it has one. */
  lift(folder: string): Promise<void>;
}

const execute = promisify(execFile);
const TIMEOUT_MS = 10_000;
const MAX_OUTPUT_BYTES = 16 << 20;
/** The smallest project number of the agent. */
const FIRST_PROJECT = 2 ** 30;
const BLOCK_BYTES = 1024n;
/** The maximum limit in blocks, which is 8 EiB. Larger limits are set to it. */
const MAX_BLOCKS = 2n ** 53n;
const OPTIONS = ['prjquota', 'pquota'];
/** The length of the output of a tool that an error quotes. */
const QUOTED_CHARACTERS = 500;

/** The limits of this host, by its own tools. */
export const hostFolderLimits: FolderLimits = {
  async problem(root) {
    const mount = mountOf(await hostMounts(), await realpath(root));
    if (mount === undefined) return `the filesystem of ${root} is not known`;
    if (!mount.options.some((option) => OPTIONS.includes(option)))
      return `${mount.path} (${mount.type}) is mounted without project quotas (prjquota)`;
    for (const [tool, packageName] of [
      ['setquota', 'quota'],
      ['chattr', 'e2fsprogs'],
    ] as const)
      if (!(await isInstalled(tool))) return `${tool} is not installed (package ${packageName})`;
    return '';
  },
  async limit(folder, bytes) {
    const project = (await projectOf(folder)) ?? (await freeProject(folder));
    await run('chattr', ['-p', String(project), '+P', '--', folder]);
    await setLimit(folder, project, (bytes + BLOCK_BYTES - 1n) / BLOCK_BYTES);
  },
  async lift(folder) {
    const project = await projectOf(folder);
    if (project !== undefined) await setLimit(folder, project, 0n);
  },
};

/**
 * Finds the oldest mount of the filesystem of a path, which setquota(8) knows: it takes no other mount of the same device, such
 * as the agent's root directory that is bound to itself. Returns `undefined` if no mount has the path.
 */
export function oldestMountOf(points: readonly MountPoint[], path: string): MountPoint | undefined {
  const device = mountOf(points, path)?.device;
  return device === undefined ? undefined : points.find((point) => point.device === device);
}

/** Returns the projects in the output of `lsattr -pa`, by the names of the entries. */
export function projectsIn(listed: string): Map<string, number> {
  const found = new Map<string, number>();
  for (const line of listed.split('\n')) {
    const [, project = '', path = ''] = /^ *(\d+) \S+ (.+)$/.exec(line) ?? [];
    if (path !== '') found.set(basename(path), Number(project));
  }
  return found;
}

async function projectsBeside(folder: string): Promise<Map<string, number>> {
  return projectsIn(await run('lsattr', ['-pa', '--', dirname(folder)]));
}

/** Returns the project that an earlier call has chosen for the folder, or `undefined` if none has. */
async function projectOf(folder: string): Promise<number | undefined> {
  const project = (await projectsBeside(folder)).get(basename(folder)) ?? 0;
  return project < FIRST_PROJECT ? undefined : project;
}

/** Chooses a project that no folder beside this one has. Removed volumes keep their project until they are empty. */
async function freeProject(folder: string): Promise<number> {
  const usedIds = new Set((await projectsBeside(folder)).values());
  // 30 bits of the hash keep the number below 2^31.
  let project = FIRST_PROJECT + (createHash('sha256').update(basename(folder)).digest().readUInt32BE() >>> 2);
  while (usedIds.has(project)) project += 1;
  return project;
}

async function setLimit(folder: string, project: number, blocks: bigint): Promise<void> {
  const mount = oldestMountOf(await hostMounts(), await realpath(folder));
  if (mount === undefined) throw new Error(`the filesystem of ${folder} is not known`);
  const hard = String(blocks > MAX_BLOCKS ? MAX_BLOCKS : blocks);
  await run('setquota', ['-P', String(project), '0', hard, '0', '0', mount.path]);
}

async function isInstalled(tool: string): Promise<boolean> {
  return execute(tool, ['--version'], { timeout: TIMEOUT_MS }).then(
    () => true,
    // A tool that does not know the option exits with a number.
    (error: unknown) => (error as { code?: unknown }).code !== 'ENOENT',
  );
}

async function run(tool: string, args: readonly string[]): Promise<string> {
  try {
    return (await execute(tool, args, { timeout: TIMEOUT_MS, maxBuffer: MAX_OUTPUT_BYTES })).stdout;
  } catch (error) {
    const { stderr = '' } = error as { stderr?: string };
    throw new Error(
      `${tool}: ${stderr.trim().split('\n').join('; ').slice(0, QUOTED_CHARACTERS) || (error as Error).message}`,
      {
        cause: error,
      },
    );
  }
}
