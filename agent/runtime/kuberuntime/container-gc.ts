/**
 * Removes dead containers and sandboxes. For an existing pod, one dead container of each name stays by default, because
 * `kubectl logs --previous` shows its log.
 */
import { inParallel } from '../../../api/machinery/in-parallel.ts';
import { namesIn } from '../../base/files/host-directory.ts';
import { join } from 'node:path';
import { rm, stat } from 'node:fs/promises';
import type { Logger } from '../../../api/component/logger.ts';
import { ifMissing, inDirectory, removeTree } from '../../base/files/beneath.ts';
import { inLogFolder, rotatedNames } from '../logs/log-files.ts';
import type { ContainerStatus, Runtime, SandboxStatus } from '../runtime.ts';

/** The runtime, the limits, and which pods still exist. */
export interface CollectOptions {
  readonly runtime: Pick<
    Runtime,
    'listContainers' | 'listSandboxes' | 'removeContainer' | 'removeSandbox' | 'stopSandbox'
  >;
  readonly logger: Logger;
  readonly podLogsDirectory: string;
  /** `<root directory>/pods`: has a directory of each pod that this agent ran and has not removed yet. */
  readonly podsDirectory: string;
  /** `/var/log/containers`, with links into the logs. */
  readonly containerLogsDirectory?: string;
  readonly podExists: (uid: string) => boolean;
  /** The value of `--maximum-dead-containers-per-container`. */
  readonly keptPerContainer?: number;
  /** `--maximum-dead-containers`; negative is no limit. */
  readonly keptInTotal?: number;
  /** `--minimum-container-ttl-duration`: younger containers stay. */
  readonly minAgeMs?: number;
  readonly nowMs?: number;
}

/** The number of containers or sandboxes that are removed at the same time. */
const PARALLEL = 4;

/** How many dead containers stay: the values of the three flags of container garbage collection. */
export interface DeadContainerPolicy {
  /** A negative number means no limit. */
  readonly keptPerContainer: number;
  /** A negative number means no limit. */
  readonly keptInTotal: number;
  /** Containers that were created before this time can be removed. */
  readonly createdBeforeMs: number;
}

/**
 * Returns the containers to remove. Pure. Running containers and those younger than the minimum age stay, and so do created
 * ones while their pod exists, because its worker may start them at any moment.
 */
export function containersToRemove(
  containers: readonly ContainerStatus[],
  podExists: (uid: string) => boolean,
  policy: DeadContainerPolicy,
): readonly ContainerStatus[] {
  const groups = new Map<string, ContainerStatus[]>();
  for (const container of containers) {
    const mayStart = container.state === 'created' && podExists(uidOf(container));
    if (container.state === 'running' || mayStart || container.createdAtMs > policy.createdBeforeMs) continue;
    const key = `${uidOf(container)}/${container.name}`;
    groups.set(key, [...(groups.get(key) ?? []), container]);
  }
  const toRemove: ContainerStatus[] = [];
  let keptGroups: ContainerStatus[][] = [];
  for (const group of groups.values()) {
    const [first] = group;
    if (first === undefined || !podExists(uidOf(first))) {
      toRemove.push(...group);
      continue;
    }
    const newestFirst = group.toSorted((a, b) => b.attempt - a.attempt || b.createdAtMs - a.createdAtMs);
    const keptCount = policy.keptPerContainer < 0 ? newestFirst.length : policy.keptPerContainer;
    toRemove.push(...newestFirst.slice(keptCount));
    keptGroups.push(newestFirst.slice(0, keptCount));
  }
  const { keptInTotal } = policy;
  if (keptInTotal < 0 || keptGroups.reduce((sum, group) => sum + group.length, 0) <= keptInTotal) return toRemove;
  // Each container keeps its share of the total, the newest first. The oldest of the rest are removed.
  const share = Math.max(1, Math.floor(keptInTotal / keptGroups.length));
  toRemove.push(...keptGroups.flatMap((group) => group.slice(share)));
  keptGroups = keptGroups.map((group) => group.slice(0, share));
  const newestFirst = keptGroups.flat().toSorted((a, b) => b.createdAtMs - a.createdAtMs);
  return [...toRemove, ...newestFirst.slice(keptInTotal)];
}

/** Returns stopped sandboxes without containers. The newest of an existing pod stays. Pure. */
function sandboxesToRemove(
  sandboxes: readonly SandboxStatus[],
  containers: readonly ContainerStatus[],
  podExists: (uid: string) => boolean,
): readonly SandboxStatus[] {
  const used = new Set(containers.map((container) => container.sandboxId));
  const newest = new Map<string, SandboxStatus>();
  for (const sandbox of sandboxes) {
    const best = newest.get(sandbox.pod.uid);
    if (best === undefined || sandbox.createdAtMs > best.createdAtMs) newest.set(sandbox.pod.uid, sandbox);
  }
  return sandboxes.filter((sandbox) => {
    if (sandbox.state === 'ready' || used.has(sandbox.id)) return false;
    return !podExists(sandbox.pod.uid) || newest.get(sandbox.pod.uid) !== sandbox;
  });
}

function uidOf(container: ContainerStatus): string {
  return container.labels['io.kubernetes.pod.uid'] ?? '';
}

/**
 * Removes terminated containers by the policy with their logs, sandboxes without containers, log directories without a pod, and
 * dead links to logs. A container or sandbox that cannot be removed is logged and does not stop the others.
 */
export async function collectContainers(options: CollectOptions): Promise<void> {
  const { runtime, logger, podExists } = options;
  const containers = await runtime.listContainers();
  const toRemove = containersToRemove(containers, podExists, {
    keptPerContainer: options.keptPerContainer ?? 1,
    keptInTotal: options.keptInTotal ?? -1,
    createdBeforeMs: (options.nowMs ?? Number.POSITIVE_INFINITY) - (options.minAgeMs ?? 0),
  });
  const attempt = async (kind: 'container' | 'sandbox', id: string, remove: () => Promise<void>): Promise<boolean> => {
    try {
      await remove();
      return true;
    } catch (error) {
      logger.debug({ err: error, id }, `Cannot remove a dead ${kind} yet`);
      return false;
    }
  };
  const removed = new Set<string>();
  await inParallel(toRemove, PARALLEL, async (container) => {
    const isRemoved = await attempt('container', container.id, async () => {
      await runtime.removeContainer(container.id);
      if (container.logPath !== '') await removeLogs(container.logPath);
    });
    if (isRemoved) removed.add(container.id);
  });
  const remaining = containers.filter((container) => !removed.has(container.id));
  const sandboxes = sandboxesToRemove(await runtime.listSandboxes(), remaining, podExists);
  await inParallel(sandboxes, PARALLEL, async ({ id }) => {
    await attempt('sandbox', id, async () => {
      await runtime.stopSandbox(id);
      await runtime.removeSandbox(id);
    });
  });
  await removeLogFolders(options, new Set(remaining.map(uidOf)));
  if (options.containerLogsDirectory !== undefined) await removeDeadLinks(options.containerLogsDirectory);
}

async function removeLogs(path: string): Promise<void> {
  await inLogFolder(path, async (folder, log) => {
    for (const name of [log, ...(await rotatedNames(folder, log))]) await folder.removeTree(name);
  }).catch(ifMissing);
}

/**
 * Removes log directories without a pod. Pods of other agents can log here too, so it removes only empty directories and those
 * of this agent's pods.
 */
async function removeLogFolders(
  { podLogsDirectory, podsDirectory, podExists }: CollectOptions,
  withContainers: ReadonlySet<string>,
): Promise<void> {
  const ownUids = new Set(await namesIn(podsDirectory));
  for (const name of await namesIn(podLogsDirectory)) {
    const uid = name.split('_').at(-1) ?? '';
    if (name.split('_').length !== 3 || podExists(uid) || withContainers.has(uid)) continue;
    const folder = join(podLogsDirectory, name);
    if (ownUids.has(uid) || (await isEmpty(folder))) await removeTree(folder);
  }
}

/** Whether the directory has nothing but empty directories of containers. */
async function isEmpty(path: string): Promise<boolean> {
  return inDirectory(path, async (folder) => {
    for (const name of await folder.names()) {
      if ((await folder.inside(name, (container) => container.names())).length > 0) return false;
    }
    return true;
    // A directory that cannot be read, or has files, is not empty.
  }).catch(() => false);
}

/** Removes links to logs that no longer exist. */
async function removeDeadLinks(directory: string): Promise<void> {
  for (const name of await namesIn(directory)) {
    const path = join(directory, name);
    const isDead = await stat(path).then(
      () => false,
      (error: NodeJS.ErrnoException) => error.code === 'ENOENT',
    );
    if (isDead) await rm(path, { force: true });
  }
}
