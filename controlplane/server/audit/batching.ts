/**
 * Implements the audit mode `batch`: events are buffered and sent in batches, and no request waits. The buffer is
 * bounded by its events and by their memory. If the sink is too slow, events lose the objects of requests and responses first,
 * so that large objects of one client displace no events of others; then events are dropped and counted.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import type { AuditBackend } from './audit.ts';
import type { AuditEvent } from './event.ts';
import { memoryOf, withoutObjects } from './event-size.ts';
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

/** The maximum memory of all events that wait or are being sent, up to which an event keeps its objects. */
const MAX_OBJECT_BYTES = 64 << 20;
/** The maximum memory of all events that wait or are being sent. Beyond it, events are dropped. */
const MAX_BYTES = 128 << 20;
/** The maximum memory of a batch of several events. The text of a far larger one would take seconds, or be too long. */
const MAX_BATCH_BYTES = 16 << 20;

interface Waiting {
  readonly event: AuditEvent;
  /** The memory that the event takes. */
  readonly bytes: number;
}

/** How long `close` waits for pending events. */
const CLOSE_TIMEOUT_MS = 5000;

/** Sends a batch when it is full or when its first event has waited for `maxWaitMs`. */
export class BatchingBackend implements AuditBackend {
  readonly #sink: EventSink;
  readonly #options: BatchOptions;
  readonly #stop = new AbortController();
  #buffer: Waiting[] = [];
  /** The memory of the buffer and of the batch that is sent. */
  #bytes = 0;
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
    const waiting = this.#buffer.length >= bufferSize ? undefined : this.#fitting(event);
    if (waiting === undefined) {
      onDropped(1);
      return;
    }
    this.#buffer.push(waiting);
    this.#bytes += waiting.bytes;
    if (this.#buffer.length >= maxBatchSize || this.#bytes >= MAX_BATCH_BYTES) this.#flush();
    else this.#timer ??= clock.after(maxWaitMs, () => this.#flush());
  }

  /** Returns the event, without its objects if memory is short. Returns `undefined` if there is no memory for that either. */
  #fitting(event: AuditEvent): Waiting | undefined {
    const bytes = memoryOf(event, MAX_OBJECT_BYTES - this.#bytes);
    if (this.#bytes + bytes <= MAX_OBJECT_BYTES) return { event, bytes };
    const short = withoutObjects(event);
    const shortBytes = memoryOf(short);
    return this.#bytes + shortBytes <= MAX_BYTES ? { event: short, bytes: shortBytes } : undefined;
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
      const { events, bytes } = this.#take();
      try {
        await this.#throttle();
        await this.#sink.write(events);
      } catch (error) {
        this.#options.onDropped(events.length);
        this.#options.logger.error({ err: error, events: events.length }, 'Cannot write audit events, they are lost');
      } finally {
        this.#bytes -= bytes;
      }
    }
  }

  /** Takes the next batch from the buffer. */
  #take(): { readonly events: readonly AuditEvent[]; readonly bytes: number } {
    let [count, bytes] = [0, 0];
    for (const waiting of this.#buffer) {
      if (count > 0 && (count >= this.#options.maxBatchSize || bytes + waiting.bytes > MAX_BATCH_BYTES)) break;
      count += 1;
      bytes += waiting.bytes;
    }
    return { events: this.#buffer.splice(0, count).map(({ event }) => event), bytes };
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
