/** The revision log without durability: for tests and `startControlPlane({ memory: true })`. */
import { silentLogger, type Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Stamp } from './log-backend.ts';
import { RevisionLog } from './revision-log.ts';
import type { Storage } from './storage.ts';

export interface MemoryStorageOptions {
  readonly clock: Clock;
  readonly logger?: Logger;
  /** `stampRevision` of `object-bytes.ts` where a watch cache reads; values as they are otherwise. */
  readonly stamp?: Stamp;
  /** A watch failed and was closed. */
  readonly onWatchFailed?: (resource: string) => void;
}

export function openMemoryStorage(options: MemoryStorageOptions): Storage {
  const { clock, logger = silentLogger, stamp, onWatchFailed } = options;
  return new RevisionLog({ clock, logger, stamp, onWatchFailed, backend: undefined });
}
