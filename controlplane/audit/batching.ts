/**
 * Implements the audit mode `batch`: events are buffered and sent in batches, and no request waits. The buffer is
 * bounded. If the sink is too slow, events are dropped and counted.
 */
import type { Logger } from '../../api/component/logger.ts';
import { background } from '../../api/machinery/background.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import type { AuditBackend } from './audit.ts';
import type { AuditEvent } from './event.ts';
import type { EventSink } from './event-sink.ts';

/** The flags `--audit-*-batch-*`. Sizes count events. */
export interface BatchOptions {
  readonly bufferSize: number;
  readonly maxBatchSize: number;
  readonly maxWaitMs: number;
  /** The maximum number of batches per second; 0 means no limit. */
  readonly qps: number;
  readonly burst: number;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onDropped: (count: number) => void;
}

/** How long `close` waits for pending events. */
const CLOSE_TIMEOUT_MS = 5000;

/** Sends a batch when it is full or when its first event has waited for `maxWaitMs`. */
export class BatchingBackend implements AuditBackend {
  readonly #sink: EventSink;
  readonly #options: BatchOptions;
  readonly #stop = new AbortController();
  #buffer: AuditEvent[] = [];
  #timer: Timer | undefined;
  #sending: Promise<void> | undefined;
  #tokens: number;
  #filledMs: number;

  constructor(sink: EventSink, options: BatchOptions) {
    this.#sink = sink;
    this.#options = options;
    this.#tokens = options.burst;
    this.#filledMs = options.clock.monotonic();
  }

  process(event: AuditEvent): void {
    const { bufferSize, maxBatchSize, maxWaitMs, clock, onDropped } = this.#options;
    if (this.#buffer.length >= bufferSize) {
      onDropped(1);
      return;
    }
    this.#buffer.push(event);
    if (this.#buffer.length >= maxBatchSize) this.#flush();
    else this.#timer ??= clock.after(maxWaitMs, () => this.#flush());
  }

  async close(): Promise<void> {
    this.#flush();
    const { clock } = this.#options;
    const timer = clock.after(CLOSE_TIMEOUT_MS, () => {
      this.#stop.abort(new Error('audit is closed'));
      background(this.#sink.close(), { logger: this.#options.logger, what: 'Closing the audit sink' });
    });
    while (this.#sending !== undefined) await this.#sending;
    timer.cancel();
    await this.#sink.close();
  }

  #flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#sending ??= this.#send().finally(() => {
      this.#sending = undefined;
      // An event may have arrived after `#send` found the buffer empty. It must not wait for the event after it.
      if (this.#buffer.length > 0) this.#flush();
    });
  }

  async #send(): Promise<void> {
    while (this.#buffer.length > 0) {
      const batch = this.#buffer.splice(0, this.#options.maxBatchSize);
      try {
        await this.#throttle();
        await this.#sink.write(batch);
      } catch (error) {
        this.#options.onDropped(batch.length);
        this.#options.logger.error({ err: error, events: batch.length }, 'Cannot write audit events, they are lost');
      }
    }
  }

  async #throttle(): Promise<void> {
    const { qps, burst, clock } = this.#options;
    if (qps <= 0) return;
    const now = clock.monotonic();
    this.#tokens = Math.min(burst, this.#tokens + ((now - this.#filledMs) / 1000) * qps);
    this.#filledMs = now;
    this.#tokens -= 1;
    if (this.#tokens < 0) await clock.sleep((-this.#tokens / qps) * 1000, this.#stop.signal);
  }
}
