/**
 * Compacts the history of the storage: every two and a half minutes it drops versions that were superseded more than five
 * minutes (`--etcd-compaction-interval`) ago. It writes nothing if nothing was written. `start/stores.ts` starts it.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { isStorageError, type Storage } from './storage.ts';

/** How far back reads of the past, pages and watches reach. */
const HISTORY_WINDOW_MS = 5 * 60_000;

export interface CompactorOptions {
  readonly storage: Storage;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly windowMs?: number;
}

export interface Compactor {
  stop(): void;
}

export function startCompactor({ storage, clock, logger, windowMs = HISTORY_WINDOW_MS }: CompactorOptions): Compactor {
  /** The revision at each look, oldest first; history of before the start counts as of now. */
  let looks = [{ atMs: clock.monotonic(), revision: storage.revision() }];
  let timer: Timer;
  const arm = (): void => {
    timer = clock.after(windowMs / 2, look);
  };
  const look = (): void => {
    const now = clock.monotonic();
    looks.push({ atMs: now, revision: storage.revision() });
    const old = looks.findLast((one) => now - one.atMs >= windowMs);
    if (old !== undefined) {
      looks = looks.filter((one) => one.atMs >= old.atMs);
      storage.compact(old.revision).catch((error: unknown) => {
        if (!isStorageError(error, 'closed'))
          logger.warn({ err: error }, 'The history of the storage could not be compacted.');
      });
    }
    arm();
  };
  arm();
  return { stop: () => timer.cancel() };
}
