/**
 * Sends audit events in batches to a webhook. The buffer is bounded: when the webhook cannot keep up events are dropped and
 * counted. A batch that fails is tried again a few times, each time after twice the wait, and given up then.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import type { WebhookClient, WebhookEndpoint } from '../authentication/webhook-client.ts';
import { withTimeout } from '../authentication/webhook-client.ts';
import type { AuditBackend } from './audit.ts';
import type { AuditEvent } from './event.ts';

export interface WebhookBackendOptions {
  readonly endpoint: () => Promise<WebhookEndpoint>;
  readonly client: WebhookClient;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onDropped: (count: number) => void;
  readonly bufferSize: number;
  readonly maxBatchSize: number;
  readonly maxWaitMs: number;
  readonly initialBackoffMs: number;
  /** Batches a second; 0: no limit. */
  readonly qps: number;
  readonly burst: number;
}

const ATTEMPTS = 5;
const CALL_TIMEOUT_MS = 30_000;
/** At the end what waits gets this long. */
const CLOSE_TIMEOUT_MS = 5000;

export class WebhookBackend implements AuditBackend {
  readonly #options: WebhookBackendOptions;
  readonly #stop = new AbortController();
  #buffer: AuditEvent[] = [];
  #timer: Timer | undefined;
  #sending: Promise<void> | undefined;
  #tokens: number;
  #filledMs: number;

  constructor(options: WebhookBackendOptions) {
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
    const timer = clock.after(CLOSE_TIMEOUT_MS, () => this.#stop.abort(new Error('the audit webhook is closed')));
    while (this.#sending !== undefined) await this.#sending;
    timer.cancel();
  }

  #flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#sending ??= this.#send().finally(() => {
      this.#sending = undefined;
    });
  }

  async #send(): Promise<void> {
    while (this.#buffer.length > 0) {
      const batch = this.#buffer.splice(0, this.#options.maxBatchSize);
      try {
        await this.#throttle();
        await this.#post(batch);
      } catch (error) {
        this.#options.onDropped(batch.length);
        this.#options.logger.error({ err: error, events: batch.length }, 'Audit events could not be sent');
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

  async #post(items: readonly AuditEvent[]): Promise<void> {
    const { endpoint, client, clock, initialBackoffMs } = this.#options;
    const body = JSON.stringify({ kind: 'EventList', apiVersion: 'audit.k8s.io/v1', metadata: {}, items });
    for (let attempt = 1; ; attempt++) {
      let problem: unknown;
      try {
        const signal = withTimeout(CALL_TIMEOUT_MS, this.#stop.signal);
        const { status } = await client.call(await endpoint(), { method: 'POST', body, signal });
        if (status >= 200 && status < 300) return;
        problem = new Error(`the webhook answered ${status}`);
        if (status < 500 && status !== 429) throw problem;
      } catch (error) {
        if (this.#stop.signal.aborted || error === problem) throw error;
        problem = error;
      }
      if (attempt >= ATTEMPTS) throw problem;
      await clock.sleep(initialBackoffMs * 2 ** (attempt - 1), this.#stop.signal);
    }
  }
}
