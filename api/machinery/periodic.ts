/**
 * Runs work in periods: the next turn follows a fixed time after the one before, whether that succeeded or failed. Work that
 * can be woken, or whose delay varies, is run by a `WakeableLoop`.
 */
import { Backoff } from './backoff.ts';
import { type Clock, pause } from './clock.ts';
import { WakeableLoop } from './wakeable-loop.ts';

interface PeriodicOptions {
  readonly clock: Clock;
  readonly periodMs: number;
  readonly signal: AbortSignal;
  /** Called with the error of each failed turn and the number of consecutive failures. It is not called after the abort. */
  readonly onError: (error: unknown, failures: number) => void;
  /** The beginning of the first turn: at once, which is the default, or after one period. */
  readonly first?: 'now' | 'later';
}

/** Takes turns until the signal aborts. Never rejects, and resolves after the last turn. */
export async function periodically(
  turn: () => unknown,
  { clock, periodMs, signal, onError, first = 'now' }: PeriodicOptions,
): Promise<void> {
  if (first === 'later') await pause(clock, periodMs, signal);
  const backoff = new Backoff({ firstMs: periodMs, longestMs: periodMs });
  await new WakeableLoop({ clock, onError, backoff }).run(signal, async () => {
    await turn();
    return periodMs;
  });
}
