/** Owns the order in which the parts of the agent start and stop. Parts are added in the order of their dependencies. */
import type { Logger } from '../../api/component/logger.ts';

/** How the agent stops. */
export interface Closing {
  /** No pods remain on the host, so the agent also removes what it has set up for them, such as service rules. */
  readonly hostCleared: boolean;
}

/** A part of the agent that runs a loop, has something to close, or both. */
export interface Part {
  /** Runs until the signal aborts. */
  run?(signal: AbortSignal): Promise<unknown>;
  close?(how: Closing): unknown;
}

/** Owns the started parts. A loop that fails is logged, and the others go on. */
export class Lifecycle {
  readonly #logger: Logger;
  readonly #abort = new AbortController();
  readonly #parts: { readonly part: Part; running: Promise<unknown> | undefined }[] = [];

  /** `signal` also aborts the lifecycle. */
  constructor(logger: Logger, signal: AbortSignal | undefined) {
    this.#logger = logger;
    signal?.addEventListener('abort', () => this.#abort.abort(signal.reason), { once: true });
  }

  /** Aborts when the agent stops. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Adds a part, whose dependencies have been added before, and returns it. */
  add<P extends Part>(part: P): P {
    this.#parts.push({ part, running: undefined });
    return part;
  }

  /** Starts the loops of all parts. */
  start(): void {
    for (const entry of this.#parts)
      entry.running = entry.part.run?.(this.signal).catch((error) => this.#logFailure(error));
  }

  /**
   * Aborts the signal of every part, and then waits for each part and closes it, in the reverse order of their start. A part
   * that cannot be closed does not keep the others open. Rejects with the first failure, once all are closed.
   */
  async close(how: Closing = { hostCleared: false }): Promise<void> {
    this.#abort.abort(new Error('the agent is stopping'));
    const failures: unknown[] = [];
    for (const { part, running } of this.#parts.toReversed()) {
      await running;
      await Promise.resolve()
        .then(() => part.close?.(how))
        .catch((error: unknown) => failures.push(error));
    }
    if (failures.length > 0) throw failures[0];
  }

  #logFailure(error: unknown): void {
    if (!this.signal.aborted) this.#logger.error({ err: error }, 'A loop of the agent failed');
  }
}
