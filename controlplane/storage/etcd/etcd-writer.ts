/** Writes to etcd: one transaction for each write, which compares revisions of its keys first. */
import { GrpcError } from '../../../api/grpc/grpc-error.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { isStorageError, StorageError, type TransactionWrite } from '../storage.ts';
import { COMPARE_MOD_REVISION, COMPARE_VERSION } from './etcd-interface.ts';
import type { EtcdLeases } from './etcd-leases.ts';
import type { EtcdMetrics } from './etcd-metrics.ts';
import type { EtcdValueLayout } from './etcd-reader.ts';
import type { EtcdServers } from './etcd-servers.ts';

interface EtcdWriterOptions {
  readonly servers: EtcdServers;
  readonly layout: EtcdValueLayout;
  readonly clock: Clock;
  readonly leases: EtcdLeases;
  readonly metrics?: EtcdMetrics | undefined;
}

/** A write with the keys and values of the storage. */
export interface EtcdWrite {
  readonly key: string;
  /** The value to write. If it is `undefined`, the key is deleted. */
  readonly value: Buffer | undefined;
  /** The revision that the key must have. 0 means that it must not exist. */
  readonly expectedRevision: number;
  readonly expiresAtMs: number | undefined;
  readonly transactionWrites: readonly TransactionWrite[];
}

interface EtcdWritten {
  /** Whether all comparisons held. Otherwise nothing was written. */
  readonly succeeded: boolean;
  /** The revision of the write, or the one at which the comparisons failed. */
  readonly revision: number;
}

/** Keeps no state of its own. Errors are `StorageError`s. */
export class EtcdWriter {
  readonly #options: EtcdWriterOptions;

  constructor(options: EtcdWriterOptions) {
    this.#options = options;
  }

  /**
   * Writes a value, with a lease if it expires, or deletes the key. A lease that etcd has lost is replaced once. Throws
   * `refused` for a value that cannot be encrypted.
   */
  async write(write: EtcdWrite): Promise<EtcdWritten> {
    if (write.expiresAtMs === undefined || write.value === undefined) return this.#commit(write, 0);
    const { clock, leases } = this.#options;
    const seconds = Math.max(1, Math.ceil((write.expiresAtMs - clock.now()) / 1000));
    const lease = await leases.lease(seconds);
    try {
      return await this.#commit(write, lease);
    } catch (error) {
      // etcd has lost the lease, for example because it was restored.
      const isLost = isStorageError(error) && error.cause instanceof GrpcError && error.cause.status === 'NotFound';
      if (!isLost) throw error;
      leases.forget(lease);
      return this.#commit(write, await leases.lease(seconds));
    }
  }

  async #commit(write: EtcdWrite, lease: number): Promise<EtcdWritten> {
    const { key, value, expectedRevision, transactionWrites } = write;
    const operations = [
      this.#operation(key, value, lease),
      ...transactionWrites.map((one) => this.#operation(one.key, one.value, 0)),
    ];
    const compared = transactionWrites.filter((one) => one.value !== undefined);
    const request = {
      compare: [
        this.#comparison(key, expectedRevision),
        ...compared.map((one) => this.#comparison(one.key, one.expectedRevision ?? 0)),
      ],
      success: operations,
    };
    const { servers, metrics } = this.#options;
    const send = () => servers.run((rpc, options) => rpc.call('txn', request, options), { isWrite: true });
    const kind = value === undefined ? 'delete' : expectedRevision === 0 ? 'create' : 'update';
    const { header, succeeded } = await (metrics === undefined ? send() : metrics.measure(kind, key, send));
    return { succeeded, revision: header?.revision ?? 0 };
  }

  #comparison(key: string, revision: number) {
    return revision === 0
      ? { target: COMPARE_VERSION, key: this.#etcdKey(key), version: 0 }
      : { target: COMPARE_MOD_REVISION, key: this.#etcdKey(key), modRevision: revision };
  }

  #operation(key: string, value: Buffer | undefined, lease: number) {
    const etcdKey = this.#etcdKey(key);
    if (value === undefined) return { requestDeleteRange: { key: etcdKey } };
    return { requestPut: { key: etcdKey, value: this.#sealed(key, value), lease } };
  }

  #sealed(key: string, value: Buffer): Buffer {
    const { values, transformer, keys } = this.#options.layout;
    const converted = values.toEtcd(value);
    try {
      return transformer.seal(key, converted, keys.toEtcd(key));
    } catch (cause) {
      const why = errorMessage(cause);
      throw new StorageError('refused', `${key} cannot be encrypted: ${why}`, { cause });
    }
  }

  #etcdKey(key: string): Buffer {
    return Buffer.from(this.#options.layout.keys.toEtcd(key));
  }
}
