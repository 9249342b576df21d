/**
 * Compacts the history of the storage: twice in each window (`--etcd-compaction-interval`), it drops versions that were
 * superseded before the window. A process counts from the last compaction of an earlier one, so that the history is bounded
 * however often the process restarts.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { isStorageError, type Storage } from './storage.ts';

/** How long the history reaches back for reads of the past, pages and watches. */
const HISTORY_WINDOW_MS = 5 * 60_000;

interface CompactorOptions {
  readonly storage: Storage;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly windowMs?: number;
}

interface Compactor {
  stop(): void;
}

/**
 * Compacts revisions that are older than the window, periodically until it is stopped. A failed compaction is logged, and the
 * next turn compacts what it left.
 */
export function startCompactor({ storage, clock, logger, windowMs = HISTORY_WINDOW_MS }: CompactorOptions): Compactor {
  /** Revisions with the time at which they were the newest, oldest first. */
  let observed = observedBefore(storage, clock, windowMs);
  let timer: Timer;
  const observe = (): void => {
    const now = clock.monotonic();
    observed.push({ atMs: now, revision: storage.revision() });
    const old = observed.findLast((one) => now - one.atMs >= windowMs);
    if (old !== undefined) observed = observed.filter((one) => one.atMs >= old.atMs);
    // This first compaction drops nothing, but later processes count from its time.
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

/** Returns what an earlier process observed. Without it, the existing history counts as of now. */
function observedBefore(storage: Storage, clock: Clock, windowMs: number): { atMs: number; revision: number }[] {
  const last = storage.lastCompaction();
  if (last === undefined) return [];
  const ageMs = clock.now() - last.atMs;
  // A negative age means that the wall clock was set back. The history then counts as old, because otherwise it could grow
  // until the clock has caught up.
  return [{ atMs: clock.monotonic() - (ageMs < 0 ? windowMs : ageMs), revision: last.revision }];
}
