/**
 * Closes the control plane of a process that exits. Parts of it release their Leases and addresses first, each of which may
 * wait for a storage that does not answer. systemd kills the process after 30 s, so this stops waiting before that.
 */
import type { Logger } from '../../api/component/logger.ts';
import { type Clock, systemClock } from '../../api/machinery/clock.ts';

const CLOSE_WITHIN_MS = 25_000;

interface ClosePlaneOptions {
  readonly logger: Logger;
  readonly clock?: Clock;
}

/**
 * Closes the control plane. Resolves when the control plane is closed, or after 25 s. Then the process may exit: what was
 * acknowledged is durable.
 */
export async function closePlane(
  plane: { close(): Promise<void> },
  { logger, clock = systemClock }: ClosePlaneOptions,
): Promise<void> {
  const stop = new AbortController();
  const late = clock.sleep(CLOSE_WITHIN_MS, stop.signal).then(
    () => 'late' as const,
    () => 'closed' as const,
  );
  const closed = plane.close().finally(() => stop.abort());
  if ((await Promise.race([closed, late])) === 'late')
    logger.warn({}, 'The control plane could not be closed in time; its Leases and addresses expire by themselves');
}
