/**
 * Polls every few seconds whether the container runtime and its network are ready. The node's Ready condition and the
 * pod workers read the result.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { periodically } from '../../api/machinery/periodic.ts';
import type { Runtime } from './runtime.ts';

const INTERVAL_MS = 5_000;
/** The time after which the runtime counts as down if a check does not end. After a failed check it counts as down at once. */
const DOWN_AFTER_MS = 30_000;

interface RuntimeStateOptions {
  readonly runtime: Pick<Runtime, 'conditions'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onChange: () => void;
}

/** Owns the last answer of the runtime. Errors are texts for the condition Ready. */
export class RuntimeState {
  readonly #options: RuntimeStateOptions;
  #lastReadyMs: number | undefined;
  #runtimeMessage = '';
  #networkMessage = 'container runtime network not ready: it has not responded yet';

  constructor(options: RuntimeStateOptions) {
    this.#options = options;
  }

  /** Returns why the runtime counts as down; empty while it is ready. */
  runtimeErrors(): readonly string[] {
    const since = this.#lastReadyMs;
    if (since !== undefined && this.#options.clock.monotonic() - since <= DOWN_AFTER_MS && this.#runtimeMessage === '')
      return [];
    return [
      this.#runtimeMessage === '' ? 'container runtime is down' : `container runtime is down: ${this.#runtimeMessage}`,
    ];
  }

  /** Returns why the network of the runtime is not ready; empty while it is. */
  networkProblem(): string {
    return this.#networkMessage;
  }

  /** Checks the runtime periodically until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options;
    const onError = (error: unknown): void => logger.error({ err: error }, 'Cannot check the container runtime');
    await periodically(() => this.check(), { clock, periodMs: INTERVAL_MS, signal, onError });
  }

  /**
   * Requests the conditions of the runtime once. A failure is part of the result; `onChange` is called if the result changed.
   */
  async check(): Promise<void> {
    const { runtime, clock, logger, onChange } = this.#options;
    const before = this.#runtimeMessage + this.#networkMessage;
    try {
      const conditions = await runtime.conditions();
      const find = (type: string): string => {
        const condition = conditions.find((entry) => entry.type === type);
        return condition === undefined || condition.ready
          ? ''
          : `${condition.type}=false reason:${condition.reason} message:${condition.message}`;
      };
      this.#runtimeMessage = find('RuntimeReady');
      const network = find('NetworkReady');
      this.#networkMessage = network === '' ? '' : `container runtime network not ready: ${network}`;
      if (this.#runtimeMessage === '') this.#lastReadyMs = clock.monotonic();
    } catch (error) {
      this.#runtimeMessage = (error as Error).message;
    }
    if (this.#runtimeMessage + this.#networkMessage === before) return;
    if (this.#runtimeMessage !== '') logger.warn({ err: this.#runtimeMessage }, 'The container runtime is not ready');
    onChange();
  }
}
