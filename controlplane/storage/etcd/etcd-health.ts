/** Reports whether etcd responds and accepts writes. */
import { StorageError } from '../storage.ts';
import { ALARM_NOSPACE } from './etcd-interface.ts';
import type { EtcdServers } from './etcd-servers.ts';

interface EtcdHealthOptions {
  readonly servers: EtcdServers;
  /** The prefix of keys, such as `/registry`. */
  readonly prefix: string;
  readonly healthTimeoutMs?: number | undefined;
  readonly readyTimeoutMs?: number | undefined;
}

/** The defaults of `--etcd-healthcheck-timeout` and `--etcd-readycheck-timeout`. */
const TIMEOUT_MS = 2000;

/** The timeouts of the options hold for each request of a check, which is repeated at another member if one does not answer. */
export class EtcdHealth {
  readonly #options: EtcdHealthOptions;
  /** The running checks, with and without writes. All callers of a kind share one. */
  readonly #running = new Map<boolean, Promise<void>>();

  constructor(options: EtcdHealthOptions) {
    this.#options = options;
  }

  /** Throws the reason why etcd cannot be read or, with `writes`, cannot be written. */
  check({ writes }: { readonly writes: boolean }): Promise<void> {
    let running = this.#running.get(writes);
    if (running === undefined) {
      running = this.#check(writes).finally(() => this.#running.delete(writes));
      this.#running.set(writes, running);
    }
    return running;
  }

  async #check(writes: boolean): Promise<void> {
    const { servers, prefix, healthTimeoutMs = TIMEOUT_MS, readyTimeoutMs = TIMEOUT_MS } = this.#options;
    const timeoutMs = writes ? readyTimeoutMs : healthTimeoutMs;
    const key = Buffer.from(`${prefix}/health`);
    await servers.run((rpc, options) => rpc.call('range', { key, countOnly: true }, options), { timeoutMs });
    if (!writes) return;
    const { alarms } = await servers.run((rpc, options) => rpc.call('alarm', {}, options), { timeoutMs });
    if (alarms.some(({ alarm }) => alarm === ALARM_NOSPACE))
      throw new StorageError(
        'full',
        'etcd has no space and accepts no writes: compact and defragment it, and disarm its alarm',
      );
  }
}
