/**
 * The local volumes of this node: one folder for each below the agent's own root of volumes. The control plane asks for them by
 * name, never by path, and each step goes by descriptors, so that nothing outside of the root is made or removed.
 *
 * A folder that is removed gets another name at once. Its content follows in the background, after restarts as well.
 */
import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import { dnsSubdomainErrors } from '../../api/meta/names.ts';
import { newBadRequest } from '../../api/meta/status-error.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { ifMissing, inDirectory } from '../files/beneath.ts';

/** Names of API objects do not begin with a dot. */
const REMOVED = '.removed-';
/** Users of containers are unknown, and nobody else reaches the folder through the root. */
const VOLUME_MODE = 0o777;
const ROOT_MODE = 0o700;
const SWEEP_MS = 3_600_000;

export interface LocalVolumesOptions {
  readonly root: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

export class LocalVolumes {
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

  /** Makes a folder unless it exists, and returns its path. Rejects if an entry of another type has the name. */
  async create(name: string): Promise<string> {
    checkName(name);
    const { root, logger } = this.#options;
    await mkdir(root, { recursive: true, mode: ROOT_MODE });
    await inDirectory(root, async (directory) => (await directory.make(name, VOLUME_MODE)).close());
    logger.info({ volume: name }, 'Local volume created');
    return join(root, name);
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
