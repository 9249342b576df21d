/**
 * Ends a pull by Docker whose progress has stopped: a registry that does not answer any more, or sends byte by byte, would
 * keep the pod waiting, while another attempt may reach a registry that works.
 */
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import { RuntimeError } from '../runtime.ts';

/** The time without progress after which a pull counts as stalled. Podman reports nothing while it writes a large layer. */
const STALLED_AFTER_MS = 30 * 60_000;
/** Fewer bytes than these, for all layers together, are no progress. */
const PROGRESS_BYTES = 64 << 10;
/** The maximum number of states that are remembered. An image for Docker has at most 127 layers, each with fewer than ten. */
const MAX_STATES = 10_000;

/** A line of progress, as far as it is read here. Nothing of it has been validated. */
interface ReportedProgress {
  readonly id?: unknown;
  readonly status?: unknown;
  readonly progressDetail?: unknown;
}

/** Watches one pull, from its start until `end`. */
export class PullProgress {
  readonly #clock: Clock;
  readonly #stalled = new AbortController();
  /** The states that layers have had, and the byte counts of each state. */
  readonly #bytes = new Map<string, number>();
  #newBytes = 0;
  #timer: Timer;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#timer = this.#start();
  }

  /** Aborts with a `RuntimeError` when there was no progress for half an hour. */
  get signal(): AbortSignal {
    return this.#stalled.signal;
  }

  /** Restarts the time when a line of progress has a new state of a layer, or completes another `PROGRESS_BYTES`. */
  observe({ id, status, progressDetail }: ReportedProgress): void {
    const state = `${String(id)} ${String(status)}`;
    const { current } = (progressDetail ?? {}) as { readonly current?: unknown };
    const bytes = typeof current === 'number' ? current : 0;
    const before = this.#bytes.get(state);
    // A registry chooses how many layers an image has. Further states are no progress.
    if (before === undefined && this.#bytes.size >= MAX_STATES) return;
    this.#bytes.set(state, bytes);
    this.#newBytes += Math.max(0, bytes - (before ?? 0));
    if (before !== undefined && this.#newBytes < PROGRESS_BYTES) return;
    this.#newBytes = 0;
    this.#timer.cancel();
    this.#timer = this.#start();
  }

  /** Stops the timer of a pull that is complete or has failed. */
  end(): void {
    this.#timer.cancel();
  }

  #start(): Timer {
    return this.#clock.after(STALLED_AFTER_MS, () =>
      this.#stalled.abort(
        new RuntimeError('timeout', `the pull was given up: no progress for ${STALLED_AFTER_MS / 60_000} minutes`),
      ),
    );
  }
}
