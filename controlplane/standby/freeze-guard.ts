/**
 * Notices that this process did not run for a while, for example because it was stopped, its host was suspended or had no
 * processor time. Another control plane may have taken its place since then.
 */
import { background } from '../../api/machinery/background.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Logger } from '../../api/component/logger.ts';

interface FreezeGuardOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Aborts when the control plane closes. */
  readonly signal: AbortSignal;
  /** Called after such a pause. `before` waits for it. */
  readonly check: () => Promise<void>;
}

const TICK_MS = 500;
/** A process that does not run for longer is checked. */
const MAX_PAUSE_MS = 3000;

/** Reads the clocks twice a second and before each write. */
export class FreezeGuard {
  readonly #options: FreezeGuardOptions;
  #monotonicMs: number;
  #wallMs: number;
  #checking: Promise<void> | undefined;

  constructor(options: FreezeGuardOptions) {
    this.#options = options;
    this.#monotonicMs = options.clock.monotonic();
    this.#wallMs = options.clock.now();
    this.#tick();
  }

  /** Returns what a write has to wait for, if anything. Never rejects. */
  before(): Promise<void> | undefined {
    this.#compareClocks();
    return this.#checking;
  }

  #tick(): void {
    const { clock, signal } = this.#options;
    if (signal.aborted) return;
    this.#compareClocks();
    clock.after(TICK_MS, () => this.#tick());
  }

  /**
   * Compares the monotonic clock and the wall clock with their last values. Monotonic time does not count the time in which the
   * host was suspended, and the wall clock may be set back.
   */
  #compareClocks(): void {
    const { clock, logger, check } = this.#options;
    const [monotonicMs, wallMs] = [clock.monotonic(), clock.now()];
    const pauseMs = Math.max(monotonicMs - this.#monotonicMs, wallMs - this.#wallMs);
    this.#monotonicMs = monotonicMs;
    this.#wallMs = wallMs;
    if (pauseMs <= MAX_PAUSE_MS || this.#checking !== undefined) return;
    const checking = check().finally(() => {
      this.#checking = undefined;
    });
    background(checking, { logger, what: 'Asking whether another control plane was promoted' });
    this.#checking = checking.catch(() => undefined);
  }
}
