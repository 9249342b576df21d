/**
 * Allocates user namespaces to pods (`hostUsers: false`). Each pod gets `userNamespaces.idsPerPod` ids of the host, which
 * neither the host's users nor other pods have.
 *
 * The allocation is stored in the pod's directory (`pods/<uid>/userns`, in the kubelet's format) before the sandbox is created.
 * These files are the only state, so a restarted agent allocates no id twice, and ids are free once the pod's directory is
 * removed.
 */
import { readOwnFile } from '../../base/files/regular-file.ts';
import { namesIn } from '../../base/files/host-directory.ts';
import { dirname, join } from 'node:path';
import { makeFolder, replaceFile } from '../../../api/machinery/replace-file.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { IdMapping, NamespaceOptions } from '../runtime-security.ts';

/** The id mappings of a pod. */
export type UserNamespace = NonNullable<NamespaceOptions['userNamespace']>;

/** The range of host ids for pods. */
interface IdRange {
  readonly firstId: number;
  readonly length: number;
}

interface UserNamespacesOptions {
  /** The value of `--root-dir`. */
  readonly rootDirectory: string;
  readonly idsPerPod: number;
  readonly range: IdRange;
}

const FILE = 'userns';
const ALL_IDS = 2 ** 32;
const USER = 'kubelet';

/** Owns the allocated ranges. Two pods never have an id in common. */
export class UserNamespaces {
  readonly #options: UserNamespacesOptions;
  /** Serializes allocations: each must see the ids that the one before it took. */
  readonly #allocations = new SerialQueue();

  constructor(options: UserNamespacesOptions) {
    this.#options = options;
  }

  /**
   * Returns the pod's mapping, and allocates one if it has none. Resolves to `undefined` for a pod with the host's users.
   * Rejects if all ids are allocated, or if the file of a pod has ids that this agent would not assign.
   */
  async mapping(pod: Pod): Promise<UserNamespace | undefined> {
    if (pod.spec.hostUsers !== false) return undefined;
    const { uid } = pod.metadata;
    const firstId = await this.#allocations.run(async () => (await this.#firstId(uid)) ?? (await this.#allocate(uid)));
    return namespaceFrom(firstId, this.#options.idsPerPod);
  }

  #path(uid: string): string {
    return join(this.#options.rootDirectory, 'pods', uid, FILE);
  }

  async #firstId(uid: string): Promise<number | undefined> {
    const path = this.#path(uid);
    const text = await readOwnFile(path).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
      throw error;
    });
    return text === undefined ? undefined : readMapping(text, path, this.#options);
  }

  async #allocate(uid: string): Promise<number> {
    const { rootDirectory, idsPerPod, range } = this.#options;
    const pods = await namesIn(join(rootDirectory, 'pods'));
    const usedIds = new Set(await Promise.all(pods.map((other) => this.#firstId(other))));
    for (let firstId = range.firstId; firstId < range.firstId + range.length; firstId += idsPerPod) {
      if (usedIds.has(firstId)) continue;
      await this.#write(uid, namespaceFrom(firstId, idsPerPod));
      return firstId;
    }
    throw new Error('create user namespace: could not find an empty slot to allocate a user namespace');
  }

  async #write(uid: string, { uids, gids }: UserNamespace): Promise<void> {
    const path = this.#path(uid);
    await makeFolder(dirname(path), 0o750);
    await replaceFile(path, JSON.stringify({ uidMappings: [uids], gidMappings: [gids] }), { mode: 0o600 });
  }
}

function namespaceFrom(firstId: number, length: number): UserNamespace {
  const ids: IdMapping = { hostId: firstId, containerId: 0, length };
  return { uids: ids, gids: ids };
}

/**
 * Returns the first id of a pod's file. Throws an error with the remedy if the file has ids that this agent would not assign.
 */
function readMapping(text: string, path: string, { idsPerPod, range }: UserNamespacesOptions): number {
  const refuse = (why: string): never => {
    throw new Error(`user namespace: ${path}: ${why}; delete the pod, then remove the file`);
  };
  let found: { readonly uidMappings?: unknown; readonly gidMappings?: unknown } | null;
  try {
    found = JSON.parse(text) as typeof found;
  } catch {
    // The parser's error adds nothing.
    return refuse('not JSON');
  }
  const [uids, gids] = [onlyMapping(found?.uidMappings), onlyMapping(found?.gidMappings)];
  if (uids === undefined || gids === undefined) return refuse('not one mapping');
  if (uids.hostId !== gids.hostId || uids.length !== gids.length) return refuse('users and groups differ');
  if (uids.containerId !== 0 || gids.containerId !== 0) return refuse('0 is not mapped');
  if (uids.length !== idsPerPod) return refuse(`${uids.length} ids where a pod has ${idsPerPod}`);
  const isInside = uids.hostId >= range.firstId && uids.hostId + uids.length <= range.firstId + range.length;
  if (!isInside || (uids.hostId - range.firstId) % idsPerPod !== 0) return refuse(`${uids.hostId} is out of range`);
  return uids.hostId;
}

/** Returns the mapping of a list of one; `undefined` for anything else. */
function onlyMapping(list: unknown): IdMapping | undefined {
  const [only, ...more] = Array.isArray(list) ? (list as readonly unknown[]) : [];
  const mapping = (only ?? {}) as Partial<Record<keyof IdMapping, unknown>>;
  const numbers = [mapping.hostId, mapping.containerId, mapping.length];
  return more.length === 0 && numbers.every(Number.isSafeInteger) ? (mapping as IdMapping) : undefined;
}

/**
 * Returns the ids for pods of this host: the subordinate ids of the user `kubelet` if it has any, or else all except the first
 * and the last range of one pod. Pure. Throws if the subordinate ids are unusable: they are not one range, which
 * users and groups have in common, are not aligned to `idsPerPod`, begin in the first range, or do not suffice for `maxPods`.
 */
export function podIdRange(
  files: { readonly passwd: string; readonly subuid: string; readonly subgid: string },
  { idsPerPod, maxPods }: { readonly idsPerPod: number; readonly maxPods: number },
): IdRange {
  const all: IdRange = { firstId: idsPerPod, length: idsPerPod * (Math.floor(ALL_IDS / idsPerPod) - 2) };
  if (!new RegExp(`^${USER}:`, 'm').test(files.passwd)) return all;
  const [uids, gids] = [subordinate(files.subuid), subordinate(files.subgid)];
  if (uids === undefined && gids === undefined) return all;
  const fail = (why: string): never => {
    throw new Error(
      `the subordinate ids of the user ${USER} (/etc/subuid, /etc/subgid) cannot be given to pods: ${why}`,
    );
  };
  if (uids === undefined || gids === undefined || uids.firstId !== gids.firstId || uids.length !== gids.length)
    return fail('those of users and those of groups differ');
  if (uids.firstId % idsPerPod !== 0 || uids.length % idsPerPod !== 0)
    return fail(`${uids.firstId} and ${uids.length} are not multiples of ${idsPerPod}`);
  if (uids.firstId < idsPerPod) return fail(`they begin before ${idsPerPod}`);
  if (uids.length / idsPerPod < maxPods) return fail(`they are not enough for ${maxPods} pods`);
  return uids;
}

function subordinate(text: string): IdRange | undefined {
  const lines = text.split('\n').filter((line) => line.startsWith(`${USER}:`));
  const [first, ...more] = lines;
  if (first === undefined) return undefined;
  const [, firstId, length] = first.split(':').map(Number);
  if (more.length > 0 || firstId === undefined || length === undefined || Number.isNaN(firstId) || Number.isNaN(length))
    throw new Error(`the user ${USER} must have one line in /etc/subuid and one in /etc/subgid`);
  return { firstId, length };
}
