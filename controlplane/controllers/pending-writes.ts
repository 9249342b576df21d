/**
 * Tracks whether an informer already shows what a controller wrote for a key, so that the controller does not repeat a write.
 */
import type { KubeObject } from '../../api/meta/object.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { Informer } from '../../api/client/informer.ts';

/** The lifetime of expectations in kube-controller-manager (`ExpectationsTimeout`). */
const EXPECTATIONS_TIMEOUT_MS = 300_000;

interface Pending {
  version: bigint;
  readonly deletions: Map<string, KubeObject>;
  /** The monotonic time of the last write. */
  lastWriteMs: number;
}

/** Keeps the writes by key in memory. */
export class PendingWrites<T extends KubeObject> {
  readonly #cache: Informer<T>;
  readonly #clock: Clock;
  readonly #pending = new Map<string, Pending>();

  constructor(cache: Informer<T>, clock: Clock) {
    this.#cache = cache;
    this.#clock = clock;
  }

  /** Records a create, a patch or an update. `object` is the server's response. */
  wrote(key: string, object: KubeObject): void {
    const version = BigInt(object.metadata.resourceVersion ?? '0');
    const pending = this.#of(key);
    if (version > pending.version) pending.version = version;
  }

  deleted(key: string, object: KubeObject): void {
    this.#of(key).deletions.set(object.metadata.uid ?? '', object);
  }

  forget(key: string): void {
    this.#pending.delete(key);
  }

  /** Whether no write of the key is pending. */
  settled(key: string): boolean {
    const pending = this.#pending.get(key);
    if (pending === undefined) return true;
    if (this.#clock.monotonic() - pending.lastWriteMs < EXPECTATIONS_TIMEOUT_MS) {
      if (this.#cache.seenVersion < pending.version) return false;
      for (const object of pending.deletions.values()) {
        const cached = this.#cache.get(object.metadata.namespace ?? '', object.metadata.name ?? '');
        if (cached?.metadata.uid === object.metadata.uid && cached?.metadata.deletionTimestamp === undefined)
          return false;
      }
    }
    this.#pending.delete(key);
    return true;
  }

  #of(key: string): Pending {
    let pending = this.#pending.get(key);
    if (pending === undefined) {
      pending = { version: 0n, deletions: new Map(), lastWriteMs: 0 };
      this.#pending.set(key, pending);
    }
    pending.lastWriteMs = this.#clock.monotonic();
    return pending;
  }
}
