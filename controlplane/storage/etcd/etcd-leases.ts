/**
 * Grants the leases with which etcd removes keys by itself (events). One lease serves many keys of nearly the same life, as in
 * kube-apiserver: a key lives longer than requested by at most 5 % and at most `--lease-reuse-duration-seconds`.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import { StorageError } from '../storage.ts';
import type { EtcdMetrics } from './etcd-metrics.ts';
import type { EtcdServers } from './etcd-servers.ts';
import { LEASE_IDS } from './etcd-interface.ts';

interface EtcdLeasesOptions {
  readonly servers: EtcdServers;
  readonly clock: Clock;
  /** The value of `--lease-reuse-duration-seconds`. */
  readonly reuseSeconds: number;
  /** The value of `--lease-max-object-count`. */
  readonly maxObjects: number;
  readonly metrics?: EtcdMetrics | undefined;
}

/** The share of its lifetime by which a key may live longer, so that it can share a lease. As in kube-apiserver. */
const REUSE_SHARE = 0.05;

interface Lease {
  readonly id: number;
  readonly granted: Promise<void>;
  /** A monotonic time in milliseconds that is not later than the time at which etcd expires the lease. */
  readonly endsAtMs: number;
  objects: number;
}

/** Keeps the lease that it granted last, for the next keys. */
export class EtcdLeases {
  readonly #options: EtcdLeasesOptions;
  #lease: Lease | undefined;

  constructor(options: EtcdLeasesOptions) {
    this.#options = options;
  }

  /** Resolves to the ID of a lease that expires about `seconds` from now. Concurrent writers share one. */
  async lease(seconds: number): Promise<number> {
    let lease = this.#lease;
    if (lease === undefined || !this.#isUsable(lease, seconds)) {
      if (lease !== undefined) this.#options.metrics?.leaseFilled(lease.objects);
      this.#lease = lease = this.#grant(seconds);
    }
    lease.objects += 1;
    await lease.granted;
    return lease.id;
  }

  /** Uses the lease no more, because etcd does not know it. */
  forget(id: number): void {
    if (this.#lease?.id === id) this.#lease = undefined;
  }

  #isUsable({ endsAtMs, objects }: Lease, seconds: number): boolean {
    const wantedMs = this.#options.clock.monotonic() + seconds * 1000;
    // A lease that lives much longer would keep the key for too long.
    const longestMs = wantedMs + this.#reuseSeconds(seconds) * 1000;
    return objects < this.#options.maxObjects && endsAtMs >= wantedMs && endsAtMs <= longestMs;
  }

  #reuseSeconds(seconds: number): number {
    return Math.min(this.#options.reuseSeconds, Math.floor(seconds * REUSE_SHARE));
  }

  #grant(seconds: number): Lease {
    const ttl = seconds + this.#reuseSeconds(seconds);
    const id = 1 + Math.floor(Math.random() * LEASE_IDS);
    const endsAtMs = this.#options.clock.monotonic() + ttl * 1000;
    const granted = this.#request(ttl, id).catch((error: unknown) => {
      this.forget(id);
      throw error;
    });
    return { id, granted, endsAtMs, objects: 0 };
  }

  async #request(ttl: number, id: number): Promise<void> {
    const { servers } = this.#options;
    // A lease that is granted twice expires, so the call may be repeated.
    const { error } = await servers.run((rpc, options) => rpc.call('leaseGrant', { ttl, id }, options));
    if (error !== '') throw new StorageError('unavailable', `etcd at ${servers.url} grants no lease: ${error}`);
  }
}
