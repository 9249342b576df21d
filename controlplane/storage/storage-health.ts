/**
 * Reports whether the storage works, according to its last writes and its backend. A failure is final, and the process exits. A
 * full disk ends with the first value that is written, or with the first probe that succeeds. Probes also run while the backend
 * has a problem.
 */
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import { toError } from '../../api/meta/error-message.ts';
import type { LogBackend } from './log-backend.ts';
import { isStorageError, StorageError } from './storage.ts';

interface StorageHealthOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly backend: LogBackend | undefined;
  readonly lastRevision: () => number;
  readonly onFailure: ((error: Error) => void) | undefined;
  /** Called when a probe found no room. */
  readonly onFull: () => void;
}

const PROBE_MS = 5000;
/** The time that kube-apiserver waits for etcd in a health check. */
const ANSWER_MS = 2000;

/** The state of the storage, by the outcomes of its writes. */
export class StorageHealth {
  readonly #options: StorageHealthOptions;
  #failure: Error | undefined;
  #isFull = false;
  /**
   * Whether a full disk was logged. Small writes may succeed while larger ones fail, so only a successful probe clears this.
   */
  #isReportedFull = false;
  #trouble: string | undefined;
  #probe: Timer | undefined;
  #ping: Promise<void> | undefined;
  #isClosed = false;

  constructor(options: StorageHealthOptions) {
    this.#options = options;
    const { backend, logger } = options;
    backend?.onLost((error) => this.fail(error));
    backend?.onTrouble((problem) => {
      this.#trouble = problem;
      if (problem !== undefined) this.#armProbe();
      if (problem === undefined) logger.info({}, 'The storage works again');
      else logger.error({ problem }, 'The storage has a problem');
    });
  }

  /** The reason why writes are no longer accepted. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /** Called when the outcome of a write is unknown or the backend is lost. Nothing is written until the process restarts. */
  fail(cause: unknown): void {
    if (this.#failure !== undefined) return;
    const { logger, onFailure } = this.#options;
    this.#failure = toError(cause);
    this.#probe?.cancel();
    logger.error({ err: this.#failure }, 'The storage failed and accepts no writes until the process restarts');
    if (this.#isClosed) return;
    try {
      onFailure?.(this.#failure);
    } catch (error) {
      logger.error({ err: error }, 'The failure of the storage could not be reported');
    }
  }

  /** Records that a write succeeded. */
  succeeded(): void {
    this.#isFull = false;
  }

  /** Records that a write found no room. */
  foundFull(): void {
    const { logger } = this.#options;
    if (!this.#isReportedFull) logger.error({}, 'The disk is full: writes that find no room are refused');
    this.#isReportedFull = true;
    this.#isFull = true;
    this.#armProbe();
  }

  #foundRoom(): void {
    this.#isFull = false;
    if (!this.#isReportedFull) return;
    this.#isReportedFull = false;
    this.#options.logger.info({}, 'There is room again: the storage accepts writes');
  }

  #armProbe(): void {
    if (this.#isClosed || this.#failure !== undefined) return;
    this.#probe ??= this.#options.clock.after(PROBE_MS, () => {
      this.#probe = undefined;
      background(this.#probeRoom(), { logger: this.#options.logger, what: 'Probing the storage for room' });
    });
  }

  async #probeRoom(): Promise<void> {
    try {
      await this.#options.backend?.probe(this.#options.lastRevision());
      this.#foundRoom();
      if (this.#trouble !== undefined) this.#armProbe();
    } catch (error) {
      if (isStorageError(error, 'full')) this.#options.onFull();
      if (isStorageError(error, 'full') || isStorageError(error, 'refused')) this.foundFull();
      else this.fail(error);
    }
  }

  /** Throws the reason why the storage cannot be read or, with `writes`, cannot be written. */
  async check({ writes }: { readonly writes: boolean }): Promise<void> {
    if (this.#failure !== undefined) throw new Error(`the storage failed: ${this.#failure.message}`);
    if (this.#isClosed) throw new StorageError('closed', 'the storage is closed');
    if (writes && this.#isFull) throw new Error('the disk is full: no writes are taken until there is room');
    if (writes && this.#trouble !== undefined) throw new Error(this.#trouble);
    await this.#assertAnswers();
  }

  /** Stops the probes. From then on, `check` throws the failure or `closed`, and a failure is logged but not reported. */
  close(): void {
    this.#isClosed = true;
    this.#probe?.cancel();
  }

  /**
   * Rejects if the backend does not answer a ping in time: a thread that hangs in fsync does not. All callers wait for one ping
   * at a time.
   */
  async #assertAnswers(): Promise<void> {
    const { backend, clock } = this.#options;
    if (backend === undefined) return;
    this.#ping ??= backend.ping().finally(() => {
      this.#ping = undefined;
    });
    const late = Promise.withResolvers<void>();
    const timer = clock.after(ANSWER_MS, () => {
      late.reject(new Error(`the storage has not answered for ${ANSWER_MS / 1000} s`));
    });
    try {
      await Promise.race([this.#ping, late.promise]);
    } finally {
      timer.cancel();
    }
  }
}
