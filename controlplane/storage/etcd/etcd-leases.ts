/**
 * Grants the leases with which etcd removes keys by itself (events). One lease serves many keys of nearly the same life, as in
 * kube-apiserver: a key lives at most 5 % or `--lease-reuse-duration-seconds` longer than requested.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import { StorageError } from '../storage.ts';
import type { EtcdServers } from './etcd-servers.ts';

export interface EtcdLeasesOptions {
  readonly servers: EtcdServers;
  readonly clock: Clock;
  /** The value of `--lease-reuse-duration-seconds`. */
  readonly reuseSeconds: number;
  /** The value of `--lease-max-object-count`. */
  readonly maxObjects: number;
}

const REUSE_SHARE = 0.05;
/** Larger IDs would not fit into a number. etcd takes any ID that is free. */
const LEASE_IDS = 2 ** 48;

export class EtcdLeases {
  readonly #options: EtcdLeasesOptions;
  #lease = { id: 0, endsAtMs: 0, objects: 0 };
  #granting: { readonly seconds: number; readonly granted: Promise<void> } | undefined;

  constructor(options: EtcdLeasesOptions) {
    this.#options = options;
  }

  /** Resolves to the ID of a lease that ends about `seconds` from now. */
  async lease(seconds: number): Promise<number> {
    if (!this.#isUsable(seconds)) {
      // Concurrent writers share the lease that one of them requests.
      if (this.#granting?.seconds !== seconds) {
        const granted = this.#grant(seconds).finally(() => {
          if (this.#granting?.granted === granted) this.#granting = undefined;
        });
        this.#granting = { seconds, granted };
      }
      await this.#granting.granted;
    }
    this.#lease.objects += 1;
    return this.#lease.id;
  }

  /** Uses the lease no more, because etcd does not know it. */
  forget(id: number): void {
    if (this.#lease.id === id) this.#lease = { id: 0, endsAtMs: 0, objects: 0 };
  }

  #isUsable(seconds: number): boolean {
    const { id, endsAtMs, objects } = this.#lease;
    const wantedMs = this.#options.clock.monotonic() + seconds * 1000;
    // A lease that lives much longer would keep the key for too long.
    const longestMs = wantedMs + this.#reuseSeconds(seconds) * 1000;
    return id !== 0 && objects < this.#options.maxObjects && endsAtMs >= wantedMs && endsAtMs <= longestMs;
  }

  #reuseSeconds(seconds: number): number {
    return Math.min(this.#options.reuseSeconds, Math.floor(seconds * REUSE_SHARE));
  }

  async #grant(seconds: number): Promise<void> {
    const { servers, clock } = this.#options;
    const ttl = seconds + this.#reuseSeconds(seconds);
    const id = 1 + Math.floor(Math.random() * LEASE_IDS);
    const beganMs = clock.monotonic();
    // Another grant costs a lease that ends by itself, so the call may be made again.
    const { error } = await servers.run((rpc, options) => rpc.call('leaseGrant', { ttl, id }, options));
    if (error !== '') throw new StorageError('unavailable', `etcd at ${servers.url} grants no lease: ${error}`);
    this.#lease = { id, endsAtMs: beganMs + ttl * 1000, objects: 0 };
  }
}
