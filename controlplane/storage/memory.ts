/** Opens a revision log without durability. */
import { silentLogger, type Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Stamp } from './log-backend.ts';
import { RevisionLog } from './revision-log.ts';
import type { Storage } from './storage.ts';

interface MemoryStorageOptions {
  readonly clock: Clock;
  readonly logger?: Logger;
  /**
   * Writes the revision into a value. A watch cache needs `stampRevision` of `object-bytes.ts`. Without it, values stay
   * unchanged.
   */
  readonly stamp?: Stamp;
  /** Called when a watch failed and was closed. */
  readonly onWatchFailed?: (resource: string) => void;
}

/** Opens a storage in memory. The storage is empty, and everything in it is lost when the process ends. */
export function openMemoryStorage(options: MemoryStorageOptions): Storage {
  const { clock, logger = silentLogger, stamp, onWatchFailed } = options;
  return new RevisionLog({ clock, logger, stamp, onWatchFailed, backend: undefined });
}
