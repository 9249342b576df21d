/**
 * The local volumes of this node: one folder for each below the agent's own root of volumes. The control plane asks for them by
 * name, never by path, and folders are made and removed through descriptors, so that nothing outside of the root is.
 *
 * A folder that is removed gets another name at once. Its content follows in the background, after restarts as well.
 *
 * Where the filesystem has project quotas, the capacity of a volume is a limit.
 */
import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { SerialQueue } from '../../api/machinery/serial-queue.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import { dnsSubdomainErrors } from '../../api/meta/names.ts';
import { newBadRequest } from '../../api/meta/status-error.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { ifMissing, inDirectory } from '../base/files/beneath.ts';
import type { FolderLimits } from '../host/project-quota.ts';

/** The prefix of the names of removed folders. No volume has such a name: names of API objects do not begin with a dot. */
const REMOVED = '.removed-';
/** Users of containers are unknown, and nobody else reaches the folder through the root. */
const VOLUME_MODE = 0o777;
const ROOT_MODE = 0o700;
const SWEEP_MS = 3_600_000;

interface LocalVolumesOptions {
  readonly root: string;
  readonly limits: FolderLimits;
  readonly clock: Clock;
  readonly logger: Logger;
}

interface LocalVolume {
  readonly path: string;
  /** Why the volume may use more than its capacity; an empty string if it may not. */
  readonly unlimited: string;
}

/** Owns the folders below the root. A name that is no DNS subdomain is refused with a 400. */
export class LocalVolumes {
  /** Limits one folder at a time, because each gets a project that no other folder has. */
  readonly #limiting = new SerialQueue();
  readonly #options: LocalVolumesOptions;
  readonly #loop: WakeableLoop;

  constructor(options: LocalVolumesOptions) {
    const { clock, logger } = options;
    this.#options = options;
    this.#loop = new WakeableLoop({
      clock,
      backoff: new Backoff({ firstMs: 10_000, longestMs: SWEEP_MS }),
      onError: (error) => logger.warn({ err: error }, 'A removed local volume could not be deleted; retrying'),
    });
  }

  /**
   * Makes a folder unless it exists, and limits it to its capacity in bytes, if that is given. Rejects if an entry of another
   * type has the name.
   */
  async create(name: string, capacity?: bigint): Promise<LocalVolume> {
    checkName(name);
    const { root, logger } = this.#options;
    await mkdir(root, { recursive: true, mode: ROOT_MODE });
    await inDirectory(root, async (directory) => (await directory.make(name, VOLUME_MODE)).close());
    const unlimited = capacity === undefined ? 'its capacity is not known' : await this.#limit(name, capacity);
    logger.info({ volume: name, ...(unlimited === '' ? {} : { unlimited }) }, 'Local volume created');
    return { path: join(root, name), unlimited };
  }

  /** Limits the folder to the capacity. Resolves to why that is not possible, or to an empty string if it is limited. */
  #limit(name: string, capacity: bigint): Promise<string> {
    const { root, limits } = this.#options;
    return this.#limiting.run(async () => {
      try {
        const problem = await limits.problem(root);
        if (problem === '') await limits.limit(join(root, name), capacity);
        return problem;
      } catch (error) {
        return (error as Error).message;
      }
    });
  }

  /** Removes the quota of a removed volume, because it would count for the next volume with the same project. */
  async #lift(name: string): Promise<void> {
    const { root, limits, logger } = this.#options;
    await this.#limiting.run(async () => {
      try {
        if ((await limits.problem(root)) === '') await limits.lift(join(root, name));
      } catch (error) {
        logger.warn({ volume: name, err: error }, 'The quota of a removed local volume stays');
      }
    });
  }

  /** Removes a folder. One that does not exist is no error. Rejects if something is mounted there. */
  async remove(name: string): Promise<void> {
    checkName(name);
    const { root, logger } = this.#options;
    const removed = `${REMOVED}${randomBytes(12).toString('hex')}`;
    const isThere = await inDirectory(root, async (directory) => {
      await directory.rename(name, removed);
      return true;
    }).catch(ifMissing);
    if (isThere !== true) return;
    await this.#lift(removed);
    logger.info({ volume: name }, 'Local volume removed');
    this.#loop.wake();
  }

  /** Deletes the content of removed volumes until the signal aborts. */
  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal, async () => {
      await inDirectory(this.#options.root, async (directory) => {
        for (const name of await directory.names())
          if (name.startsWith(REMOVED) && !signal.aborted) await directory.removeTree(name);
      }).catch(ifMissing);
      return SWEEP_MS;
    });
  }
}

function checkName(name: string): void {
  if (dnsSubdomainErrors(name).length > 0) throw newBadRequest(`${quoteText(name)} is not the name of a volume`);
}
