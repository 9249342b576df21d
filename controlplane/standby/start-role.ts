/**
 * Decides what a control plane with `--standby-of` starts as. Both of a pair may have the flag, each with the URL of the other
 * one: the one whose promotion is the newest is the first.
 */
import { existsSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import { type Clock, formatTime } from '../../api/machinery/clock.ts';
import { makeFolder, moveFile, syncFolder } from '../../api/machinery/replace-file.ts';
import { StartError } from '../model/start-error.ts';
import { LOG_FILE } from '../storage/sqlite/storage-thread.ts';
import type { ClusterKeys } from './identity.ts';
import { readRole, writeRole } from './role.ts';
import { ANSWER_MS, promotionOf, reportOf } from './successor.ts';

/** The two control planes of a pair. */
interface StartRoleOptions {
  readonly dataDirectory: string;
  /** The URL of the other control plane. */
  readonly other: string;
  readonly keys: ClusterKeys;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** What a control plane starts as. A standby knows when its copy was complete last, or 0. */
type StartRole = { readonly role: 'first' } | { readonly role: 'standby'; readonly completeAtMs: number };

/**
 * Resolves to the role with which this control plane starts. The database of a former first is moved to a directory
 * `before-standby-…` in the data directory. Throws a StartError if both are the first, and none was promoted.
 */
export async function startRole(options: StartRoleOptions): Promise<StartRole> {
  const { dataDirectory, other, clock, logger } = options;
  const storage = join(dataDirectory, 'storage');
  await makeFolder(storage, 0o700);
  const role = readRole(dataDirectory);
  if (role.role === 'standby') return { role: 'standby', completeAtMs: role.completeAtMs };
  if (role.role === 'fenced' || !existsSync(join(storage, LOG_FILE))) {
    await keepAside(options, storage);
    return { role: 'standby', completeAtMs: 0 };
  }
  const report = await reportOf({ ...options, url: other }, ANSWER_MS);
  const ownPromotion = promotionOf(role);
  const promotion = report?.promotion;
  if (promotion !== undefined && promotion.revision > ownPromotion) {
    logger.warn(
      { successor: other, at: formatTime(promotion.atMs) },
      'The other control plane was promoted later than this one',
    );
    await writeRole(dataDirectory, { role: 'fenced', by: other, atMs: clock.now() });
    await keepAside(options, storage);
    return { role: 'standby', completeAtMs: 0 };
  }
  if (report !== undefined && ownPromotion === 0)
    throw new StartError(
      `${dataDirectory} has the data of a first control plane, and ${other} is one as well: to keep the data of ${other}, give this one an empty --data-dir with the keys of the cluster`,
    );
  logger.info({ other }, 'This control plane is the first, so --standby-of has no effect');
  return { role: 'first' };
}

/** Moves the database of a former first out of the way of the copy. */
async function keepAside({ dataDirectory, clock, logger }: StartRoleOptions, storage: string): Promise<void> {
  const files = ['-wal', '-shm', '']
    .map((suffix) => LOG_FILE + suffix)
    .filter((name) => existsSync(join(storage, name)));
  if (files.length === 0) return;
  const time = formatTime(clock.now()).replaceAll(':', '');
  const directory = await mkdtemp(join(dataDirectory, `before-standby-${time}-`));
  await syncFolder(dataDirectory);
  for (const name of files) await moveFile(join(storage, name), join(directory, name));
  logger.warn({ directory }, 'The data that this control plane had as the first is kept in this directory');
}
