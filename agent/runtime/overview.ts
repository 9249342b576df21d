/**
 * A look at all containers waits for no single one: what does not answer soon is shown as the list alone shows it, so that a
 * container that hangs delays its own pod and no other, and the node stays well.
 */
import type { Clock } from '../../api/machinery/clock.ts';

const PATIENCE_MS = 5_000;

export async function soonOr<T>(clock: Clock, asked: Promise<T>, instead: () => T): Promise<T> {
  const limit = new AbortController();
  try {
    return await Promise.race([asked.catch(instead), clock.sleep(PATIENCE_MS, limit.signal).then(instead, instead)]);
  } finally {
    limit.abort();
  }
}
