/**
 * Compacts the history of the storage: every two and a half minutes it drops versions that were superseded more than five
 * minutes (`--etcd-compaction-interval`) ago. It writes nothing if nothing was written. `start/stores.ts` starts it.
 *
 * The storage keeps the newest revision and the time of each compaction. A process that is killed before its first interval
 * is over leaves the rest of the interval to the next one, so that history is bounded however often the process restarts.
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
  /** Revisions and when they were the newest, oldest first. */
  let observed = observedBefore(storage, clock, windowMs);
  let timer: Timer;
  const observe = (): void => {
    const now = clock.monotonic();
    observed.push({ atMs: now, revision: storage.revision() });
    const old = observed.findLast((one) => now - one.atMs >= windowMs);
    if (old !== undefined) observed = observed.filter((one) => one.atMs >= old.atMs);
    // A compaction of nothing is the first from which a later process counts.
    else if (storage.lastCompaction() === undefined) compact(storage.compactedRevision());
    if (old !== undefined) compact(old.revision);
    timer = clock.after(windowMs / 2, observe);
  };
  const compact = (revision: number): void => {
    storage.compact(revision).catch((error: unknown) => {
      if (!isStorageError(error, 'closed'))
        logger.warn({ err: error }, 'The history of the storage could not be compacted');
    });
  };
  observe();
  return { stop: () => timer.cancel() };
}

/** What an earlier process observed; without it, history of before the start counts as of now. */
function observedBefore(storage: Storage, clock: Clock, windowMs: number): { atMs: number; revision: number }[] {
  const last = storage.lastCompaction();
  if (last === undefined) return [];
  const ageMs = clock.now() - last.atMs;
  // The wall clock was set back: the age is unknown, and counting it as none could go on for as long as the difference.
  return [{ atMs: clock.monotonic() - (ageMs < 0 ? windowMs : ageMs), revision: last.revision }];
}
