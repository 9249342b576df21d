/**
 * Implements a client of an etcd cluster (API v3 over gRPC) for commands such as `orchlet migrate`: pages of a range, writes,
 * leases, compaction.
 */
import { PlainError } from '../../../api/component/plain-error.ts';
import { grpcClient, type GrpcClient } from '../../../api/grpc/grpc-client.ts';
import { openChannel, type GrpcTls } from '../../../api/grpc/grpc-channel.ts';
import { GrpcError } from '../../../api/grpc/grpc-error.ts';
import { printable } from '../../../api/meta/quote.ts';
import { endOf, ETCD_MESSAGES, ETCD_METHODS, etcdTarget, LARGEST_MESSAGE_BYTES, LEASE_IDS } from './etcd-interface.ts';

/** The error of an etcd that cannot be reached or refused a call. The message is for the operator. */
export class EtcdError extends PlainError {
  override readonly name = 'EtcdError';
}

/** A key as etcd has it. `createRevision` and `modRevision` are revisions of etcd. */
export interface EtcdKeyValue {
  readonly key: string;
  readonly value: Buffer;
  readonly createRevision: number;
  readonly modRevision: number;
  /** Whether etcd removes the key by itself. */
  readonly isLeased: boolean;
}

/** Uses one endpoint, and must be closed. */
export interface EtcdClient {
  /** The endpoint that is used. */
  readonly endpoint: string;
  /** Returns the newest revision. */
  revision(): Promise<number>;
  /** Yields all keys below `prefix` in pages, as they were at one revision. */
  pages(prefix: string): AsyncGenerator<readonly EtcdKeyValue[], void, undefined>;
  /** Creates a key. Resolves to the revision. Throws if the key exists. `lease` is a result of `grant`. */
  create(key: string, value: Buffer, lease?: number): Promise<number>;
  /** Writes a key, also over another value. Resolves to the revision. */
  put(key: string, value: Buffer): Promise<number>;
  /** Deletes all keys below `prefix`. Resolves to their number. */
  deleteBelow(prefix: string): Promise<number>;
  /** Resolves to the ID of a lease that ends after `seconds`. */
  grant(seconds: number): Promise<number>;
  /** Drops the history up to `revision`. */
  compact(revision: number): Promise<void>;
  close(): void;
}

interface EtcdOptions {
  /** `https://etcd-1:2379`: the first one that answers is used. */
  readonly servers: readonly string[];
  /** The keys and certificates for `https` servers. */
  readonly tls: GrpcTls;
}

type Rpc = GrpcClient<typeof ETCD_MESSAGES, typeof ETCD_METHODS>;

/** The number of keys that one request reads. */
const PAGE = 500;
const CALL = { timeoutMs: 30_000 };
const REACH_WITHIN_MS = 5000;
/** The maximum revision. Numbers up to twice as large are exact. No cluster reaches it. */
const LARGEST_REVISION = 2 ** 52;

/** Connects to etcd. Throws `EtcdError` if a text is no URL of a server, or if no server answers. */
export async function connectEtcd({ servers, tls }: EtcdOptions): Promise<EtcdClient> {
  const failures: string[] = [];
  for (const server of servers) {
    const address = etcdTarget(server);
    if (address === undefined)
      throw new EtcdError(`${server} is not a URL of an etcd server, such as https://etcd-1:2379`);
    const channel = await openChannel({
      target: address.target,
      largestMessageBytes: LARGEST_MESSAGE_BYTES,
      tls: address.isTls ? tls : undefined,
    });
    const rpc = grpcClient(channel, {
      messages: ETCD_MESSAGES,
      methods: ETCD_METHODS,
    });
    const client = new Client(server, rpc);
    try {
      await client.reach();
      return client;
    } catch (error) {
      client.close();
      if (!(error instanceof EtcdError)) throw error;
      failures.push(error.message);
    }
  }
  throw new EtcdError(failures.join('; '));
}

class Client implements EtcdClient {
  readonly endpoint: string;
  readonly #rpc: Rpc;

  constructor(endpoint: string, rpc: Rpc) {
    this.endpoint = endpoint;
    this.#rpc = rpc;
  }

  async reach(): Promise<void> {
    await this.#call(() => this.#rpc.call('range', { key: Buffer.from('/') }, { timeoutMs: REACH_WITHIN_MS }));
  }

  async revision(): Promise<number> {
    const { header } = await this.#call(() => this.#rpc.call('range', { key: Buffer.from('/') }, CALL));
    return header?.revision ?? 0;
  }

  async *pages(prefix: string): AsyncGenerator<readonly EtcdKeyValue[], void, undefined> {
    let key = Buffer.from(prefix);
    const rangeEnd = endOf(prefix);
    for (let revision = 0; ;) {
      const request = { key, rangeEnd, limit: PAGE, revision };
      const { header, kvs, more } = await this.#call(() => this.#rpc.call('range', request, CALL));
      revision ||= header?.revision ?? 0;
      const read = kvs.flatMap((kv) => (kv === null ? [] : [kv]));
      this.#checkPage(read, { from: key, rangeEnd, revision });
      yield read.map((kv) => ({ ...kv, key: kv.key.toString(), isLeased: kv.lease !== 0 }));
      const last = read.at(-1);
      if (!more || last === undefined) return;
      key = Buffer.concat([last.key, Buffer.alloc(1)]);
    }
  }

  /** Throws for a page that is not of the range or does not continue it: the pages might never end. */
  #checkPage(
    page: readonly { readonly key: Buffer; readonly createRevision: number; readonly modRevision: number }[],
    { from, rangeEnd, revision }: { readonly from: Buffer; readonly rangeEnd: Buffer; readonly revision: number },
  ): void {
    let previousKey: Buffer | undefined;
    for (const { key, createRevision, modRevision } of page) {
      const isNext = previousKey === undefined ? Buffer.compare(key, from) >= 0 : Buffer.compare(key, previousKey) > 0;
      if (!isNext || Buffer.compare(key, rangeEnd) >= 0)
        throw new EtcdError(`${this.endpoint} returned keys that were not requested, or in another order`);
      const isRevision = createRevision >= 1 && createRevision <= modRevision && modRevision <= revision;
      if (!isRevision || revision > LARGEST_REVISION)
        throw new EtcdError(`${this.endpoint} returned ${printable(key.toString())} with impossible revisions`);
      previousKey = key;
    }
  }

  async create(key: string, value: Buffer, lease = 0): Promise<number> {
    const requestPut = { key: Buffer.from(key), value, lease };
    const { header, succeeded } = await this.#call(() =>
      this.#rpc.call('txn', { compare: [{ key: requestPut.key }], success: [{ requestPut }] }, CALL),
    );
    if (!succeeded) throw new EtcdError(`${key} exists already in ${this.endpoint}: does another program write there?`);
    return header?.revision ?? 0;
  }

  async put(key: string, value: Buffer): Promise<number> {
    const { header } = await this.#call(() => this.#rpc.call('put', { key: Buffer.from(key), value }, CALL));
    return header?.revision ?? 0;
  }

  async deleteBelow(prefix: string): Promise<number> {
    const request = { key: Buffer.from(prefix), rangeEnd: endOf(prefix) };
    return (await this.#call(() => this.#rpc.call('deleteRange', request, CALL))).deleted;
  }

  async grant(seconds: number): Promise<number> {
    const id = 1 + Math.floor(Math.random() * LEASE_IDS);
    const { error } = await this.#call(() => this.#rpc.call('leaseGrant', { ttl: seconds, id }, CALL));
    if (error !== '') throw new EtcdError(`${this.endpoint} grants no lease: ${error}`);
    return id;
  }

  async compact(revision: number): Promise<void> {
    await this.#call(() => this.#rpc.call('compact', { revision }, CALL));
  }

  close(): void {
    this.#rpc.close();
  }

  async #call<T>(run: () => Promise<T>): Promise<T> {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof GrpcError)) throw error;
      throw new EtcdError(`etcd at ${this.endpoint} failed: ${error.message}`, { cause: error });
    }
  }
}
