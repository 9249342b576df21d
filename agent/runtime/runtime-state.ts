/** Polls every few seconds whether the container runtime and its network are ready. */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { periodically } from '../../api/machinery/periodic.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import type { Runtime } from './runtime.ts';

const INTERVAL_MS = 5_000;
/** The time without a successful check after which the runtime counts as down, as in the kubelet. */
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
  /** The condition of a runtime that answers that it is not ready. */
  #runtimeMessage = '';
  /** The error of the last check; empty if the runtime answered. */
  #checkError = '';
  #networkMessage = 'container runtime network not ready: it has not responded yet';
  /** The problems of which `onChange` was last called. */
  #reported: string;

  constructor(options: RuntimeStateOptions) {
    this.#options = options;
    this.#reported = this.#problems();
  }

  /** Returns why the runtime counts as down; empty while it is ready, and for some time after checks have begun to fail. */
  runtimeErrors(): readonly string[] {
    const since = this.#lastReadyMs;
    const isRecent = since !== undefined && this.#options.clock.monotonic() - since <= DOWN_AFTER_MS;
    if (isRecent && this.#runtimeMessage === '') return [];
    const reason = this.#runtimeMessage === '' ? this.#checkError : this.#runtimeMessage;
    return [reason === '' ? 'container runtime is down' : `container runtime is down: ${reason}`];
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

  /** Requests the conditions of the runtime once. Calls `onChange` if the errors or the network problem have changed. */
  async check(): Promise<void> {
    const { logger, onChange } = this.#options;
    const before = this.#runtimeMessage + this.#checkError;
    await this.#requestConditions();
    const message = this.#runtimeMessage + this.#checkError;
    if (message !== '' && message !== before) logger.warn({ err: message }, 'The container runtime is not ready');
    const problems = this.#problems();
    if (problems === this.#reported) return;
    this.#reported = problems;
    onChange();
  }

  async #requestConditions(): Promise<void> {
    const { runtime, clock } = this.#options;
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
      this.#checkError = '';
      if (this.#runtimeMessage === '') this.#lastReadyMs = clock.monotonic();
    } catch (error) {
      this.#checkError = errorMessage(error);
    }
  }

  #problems(): string {
    return [...this.runtimeErrors(), this.#networkMessage].join('\n');
  }
}
