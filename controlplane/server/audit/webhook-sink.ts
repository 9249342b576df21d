/**
 * Sends audit events to a webhook. A failed call is retried a few times with exponential backoff, and then given up.
 * After `close`, no call waits for a retry.
 */
import { stringifyJson } from '../../../api/codec/json.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { type WebhookClient, type WebhookEndpoint, withTimeout } from '../../security/webhooks/webhook-client.ts';
import type { AuditEvent } from './event.ts';
import type { EventSink } from './event-sink.ts';

interface WebhookSinkOptions {
  readonly endpoint: () => Promise<WebhookEndpoint>;
  readonly client: WebhookClient;
  readonly clock: Clock;
  readonly initialBackoffMs: number;
}

/** How often a batch is sent before its events are lost. */
const ATTEMPTS = 5;
const CALL_TIMEOUT_MS = 30_000;

/** Rejects a write after the last attempt, or at once for an answer that a retry cannot change. */
export class WebhookSink implements EventSink {
  readonly #options: WebhookSinkOptions;
  readonly #stop = new AbortController();

  constructor(options: WebhookSinkOptions) {
    this.#options = options;
  }

  close(): Promise<void> {
    this.#stop.abort(new Error('the audit webhook is closed'));
    return Promise.resolve();
  }

  async write(items: readonly AuditEvent[]): Promise<void> {
    const { endpoint, client, clock, initialBackoffMs } = this.#options;
    const body = stringifyJson({ kind: 'EventList', apiVersion: 'audit.k8s.io/v1', metadata: {}, items });
    const backoff = new Backoff({ firstMs: initialBackoffMs, longestMs: Infinity });
    for (;;) {
      let problem: unknown;
      try {
        const signal = withTimeout(CALL_TIMEOUT_MS, this.#stop.signal);
        const { status } = await client.call(await endpoint(), { method: 'POST', body, signal });
        if (status >= 200 && status < 300) return;
        problem = new Error(`the webhook responded with status ${status}`);
        if (status < 500 && status !== 429) throw problem;
      } catch (error) {
        if (this.#stop.signal.aborted || error === problem) throw error;
        problem = error;
      }
      const delayMs = backoff.next();
      if (backoff.failures >= ATTEMPTS) throw problem;
      await clock.sleep(delayMs, this.#stop.signal);
    }
  }
}
