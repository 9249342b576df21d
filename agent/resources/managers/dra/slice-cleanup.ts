/**
 * Deletes the ResourceSlices of this node whose drivers are not there, so that no pod gets a device that nobody could prepare.
 * As in the kubelet, slices are deleted when the agent starts, before any driver has registered, and half a minute after the
 * last instance of their driver has gone. A driver that registers again within this time keeps its slices.
 */
import type { Logger } from '../../../../api/component/logger.ts';
import { Backoff } from '../../../../api/machinery/backoff.ts';
import type { Client } from '../../../../api/client/client.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import { resourceSlices } from '../../../../api/client/resources.ts';
import { isNotFound, tolerate } from '../../../../api/meta/status-error.ts';
import { WakeableLoop } from '../../../../api/machinery/wakeable-loop.ts';

const DELAY_MS = 30_000;
const RETRIES = { firstMs: 1_000, longestMs: 300_000 };
/** The name under which the slices of all drivers are due. */
const ALL = '';

interface SliceCleanupOptions {
  readonly client: Client;
  readonly nodeName: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Owns the drivers whose slices are due. Failed deletions are logged and tried again. */
export class SliceCleanup {
  readonly #options: SliceCleanupOptions;
  readonly #dueMs = new Map<string, number>([[ALL, 0]]);
  readonly #loop: WakeableLoop;

  constructor(options: SliceCleanupOptions) {
    this.#options = options;
    this.#loop = new WakeableLoop({
      clock: options.clock,
      backoff: new Backoff(RETRIES),
      onError: (error) => options.logger.warn({ err: error }, 'Cannot delete the ResourceSlices of absent drivers yet'),
    });
  }

  /** Keeps the slices of a driver, because an instance of it is registered. */
  keep(driver: string): void {
    this.#dueMs.delete(driver);
  }

  /** Deletes the slices of a driver after `DELAY_MS`, because its last instance has gone. */
  expire(driver: string): void {
    if (this.#dueMs.has(driver)) return;
    this.#dueMs.set(driver, this.#options.clock.monotonic() + DELAY_MS);
    this.#loop.wake();
  }

  /** Deletes slices when they are due, until the signal aborts. */
  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal, async () => {
      for (const [driver, dueMs] of [...this.#dueMs]) {
        if (dueMs > this.#options.clock.monotonic() || this.#dueMs.get(driver) !== dueMs) continue;
        await this.#delete(driver, signal);
        if (this.#dueMs.get(driver) === dueMs) this.#dueMs.delete(driver);
      }
      return Math.max(0, Math.min(...this.#dueMs.values()) - this.#options.clock.monotonic());
    });
  }

  /** Deletes the slices of the driver on this node. A server without the API group has no slices. */
  async #delete(driver: string, signal: AbortSignal): Promise<void> {
    const { client, nodeName } = this.#options;
    const ofDriver = driver === ALL ? '' : `,spec.driver=${driver.replaceAll(/[\\,=]/g, String.raw`\$&`)}`;
    const fieldSelector = `spec.nodeName=${nodeName}${ofDriver}`;
    await tolerate(client.deleteCollection(resourceSlices, { fieldSelector, signal }), isNotFound);
  }
}
