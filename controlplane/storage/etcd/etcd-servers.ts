/**
 * Makes calls to the members of an etcd cluster, one of which is used at a time. When it does not answer, the next one that has
 * a connection takes over.
 *
 * Failures are `StorageError`s. A read that got no answer is repeated, at another member if there is one, and so is a write
 * that was certainly not executed. Any other write that breaks off has an unknown outcome.
 */
import { type GrpcCallOptions, type GrpcChannel, type GrpcTls, openChannel } from '../../../api/grpc/grpc-channel.ts';
import { grpcClient, type GrpcClient } from '../../../api/grpc/grpc-client.ts';
import { GrpcError } from '../../../api/grpc/grpc-error.ts';
import type { IncomingOf } from '../../../api/grpc/messages.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { StorageError, type StorageErrorCode } from '../storage.ts';
import { ETCD_MESSAGES, ETCD_METHODS, etcdTarget, LARGEST_MESSAGE_BYTES } from './etcd-interface.ts';

type EtcdRpc = GrpcClient<typeof ETCD_MESSAGES, typeof ETCD_METHODS>;
/** A decoded message of a watch. */
export type EtcdWatchResponse = IncomingOf<typeof ETCD_MESSAGES, 'WatchResponse'>;

interface EtcdServersOptions {
  /** The URLs of the members, such as `https://etcd-1:2379`. */
  readonly servers: readonly string[];
  /** The keys and certificates for `https` servers. */
  readonly tls: GrpcTls;
  readonly clock: Clock;
}

interface EtcdCallOptions {
  /** Whether the call changes something. */
  readonly isWrite?: boolean;
  readonly timeoutMs?: number;
}

/** A write waits longer than etcd itself, which gives up a request after seven seconds. */
const WRITE_MS = 10_000;
const READ_MS = 5000;
/** How long after its start a call may be repeated. */
const REPEAT_WITHIN_MS = 10_000;
/** How long a call waits for a connection to any member. */
const CONNECT_MS = 2000;
/** How long a call waits for the member in use while there are others. */
const SWITCH_MS = 300;
/** How often a connection with running calls (the watch) is pinged. */
const KEEPALIVE_MS = 10_000;
/** How long a member that is no longer used keeps its connection, so that running calls end: longer than a call may take. */
const FORGET_MS = 15_000;

interface Member {
  readonly url: string;
  readonly channel: GrpcChannel;
  readonly rpc: EtcdRpc;
}

/** The connections to all members, which must be closed. */
export class EtcdServers {
  #members: readonly Member[];
  readonly #tls: GrpcTls;
  readonly #clock: Clock;
  /** Members that are no longer used, and whose connections are not closed yet. */
  readonly #forgotten = new Set<Member>();
  /** The running watches, each by the controller that closes it. */
  readonly #watches = new Map<AbortController, Member>();
  #current: Member;
  #isClosed = false;

  private constructor(members: readonly [Member, ...Member[]], { tls, clock }: EtcdServersOptions) {
    this.#members = members;
    [this.#current] = members;
    this.#tls = tls;
    this.#clock = clock;
  }

  /**
   * Creates the access to the servers of etcd. Throws a StorageError `unusable` if there is no server, or if a text is no URL
   * of a server.
   */
  static async open(options: EtcdServersOptions): Promise<EtcdServers> {
    const { servers, tls } = options;
    const [first, ...others] = await openMembers(servers, tls);
    if (first === undefined) throw new StorageError('unusable', 'no etcd server is given: --etcd-servers');
    return new EtcdServers([first, ...others], options);
  }

  /** The URL of the member in use. */
  get url(): string {
    return this.#current.url;
  }

  /** The URLs of all members. */
  get urls(): readonly string[] {
    return this.#members.map(({ url }) => url);
  }

  /**
   * Replaces the members, unless `urls` is empty or the connections are closed. Throws a StorageError `unusable` if one of
   * `urls` is no URL of a server, and then changes nothing.
   */
  async replace(urls: readonly string[]): Promise<void> {
    const present = new Map(this.#members.map((member) => [member.url, member]));
    const wanted = new Set(urls);
    const added = await openMembers([...wanted.difference(present)], this.#tls);
    const byUrl = new Map([...present, ...added.map((member) => [member.url, member] as const)]);
    const members = [...wanted].flatMap((url) => byUrl.get(url) ?? []);
    const [first] = members;
    if (first === undefined || this.#isClosed) {
      for (const { channel } of added) channel.close();
      return;
    }
    const removed = this.#members.filter((member) => !members.includes(member));
    this.#members = members;
    if (!members.includes(this.#current)) this.#use(first);
    for (const member of removed) {
      this.#forgotten.add(member);
      this.#clock.after(FORGET_MS, () => {
        this.#forgotten.delete(member);
        member.channel.close();
      });
    }
  }

  /**
   * Makes a call at the member in use, and repeats it as the head of the file says. A failed call rejects with a
   * `StorageError`.
   */
  async run<T>(
    call: (rpc: EtcdRpc, options: GrpcCallOptions) => Promise<T>,
    { isWrite = false, timeoutMs = isWrite ? WRITE_MS : READ_MS }: EtcdCallOptions = {},
  ): Promise<T> {
    const began = this.#clock.monotonic();
    for (let attempt = 1; ; attempt += 1) {
      const member = await this.#connected();
      try {
        return await call(member.rpc, { timeoutMs });
      } catch (error) {
        if (!(error instanceof GrpcError)) throw error;
        const failure = storageErrorOf(error, { isWrite, url: member.url });
        if (failure.code !== 'unavailable' && failure.code !== 'unknown-outcome') throw failure;
        this.leave(member.url);
        const isLate = this.#clock.monotonic() - began >= REPEAT_WITHIN_MS;
        if (failure.code === 'unknown-outcome' || attempt > this.#members.length || isLate) throw failure;
      }
    }
  }

  /**
   * Watches at the member in use. Resolves when the signal aborts, when the member ends the watch, or when another member is
   * used. Rejects with the error that broke it.
   */
  async watch(
    request: { readonly key: Buffer; readonly rangeEnd: Buffer; readonly startRevision: number },
    onMessage: (message: EtcdWatchResponse) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const member = await this.#connected();
    const closing = new AbortController();
    this.#watches.set(closing, member);
    try {
      await member.rpc.stream('watch', { createRequest: { ...request, fragment: true } }, onMessage, {
        signal: AbortSignal.any([signal, closing.signal]),
        staysOpen: true,
        metadata: { hasleader: 'true' },
      });
    } catch (error) {
      if (!(error instanceof GrpcError)) throw error;
      this.leave(member.url);
      throw storageErrorOf(error, { isWrite: false, url: member.url });
    } finally {
      this.#watches.delete(closing);
    }
  }

  /** Uses the next member from now on, unless the member with this URL is no longer used. */
  leave(url: string): void {
    if (this.url !== url) return;
    const next = this.#members[(this.#members.indexOf(this.#current) + 1) % this.#members.length];
    if (next !== undefined) this.#use(next);
  }

  /** Switches to another member, and aborts the watches of the former one: its connection may be dead without an error. */
  #use(next: Member): void {
    const former = this.#current;
    if (next === former) return;
    this.#current = next;
    for (const [watch, member] of this.#watches) if (member === former) watch.abort();
  }

  close(): void {
    this.#isClosed = true;
    for (const { channel } of [...this.#members, ...this.#forgotten]) channel.close();
  }

  async #connected(): Promise<Member> {
    if (this.#isClosed) throw new StorageError('closed', 'the storage is closed');
    const member = this.#current;
    const isOnly = this.#members.length === 1;
    if (await isConnected(member, isOnly ? CONNECT_MS : SWITCH_MS)) return member;
    const found = isOnly ? undefined : await firstConnected(this.#members);
    if (this.#isClosed) throw new StorageError('closed', 'the storage is closed');
    if (found === undefined) {
      const names = this.#members.map(({ url }) => url).join(', ');
      throw new StorageError('unavailable', `no etcd server can be reached: ${names}`);
    }
    if (this.#members.includes(found)) this.#use(found);
    return found;
  }
}

/** Opens a channel for each URL. If one fails, closes the others and rejects with the error. */
async function openMembers(urls: readonly string[], tls: GrpcTls): Promise<Member[]> {
  const results = await Promise.allSettled(urls.map((url) => openMember(url, tls)));
  const opened = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  const failed = results.find((result) => result.status === 'rejected');
  if (failed === undefined) return opened;
  for (const { channel } of opened) channel.close();
  throw failed.reason;
}

async function openMember(url: string, tls: GrpcTls): Promise<Member> {
  const server = etcdTarget(url);
  if (server === undefined)
    throw new StorageError('unusable', `${url} is not a URL of an etcd server, such as https://etcd-1:2379`);
  const channel = await openChannel({
    target: server.target,
    largestMessageBytes: LARGEST_MESSAGE_BYTES,
    keepaliveMs: KEEPALIVE_MS,
    tls: server.isTls ? tls : undefined,
  });
  const tables = { messages: ETCD_MESSAGES, methods: ETCD_METHODS } as const;
  return { url, channel, rpc: grpcClient(channel, tables) };
}

const isConnected = ({ channel }: Member, timeoutMs: number): Promise<boolean> => channel.connected(timeoutMs);

/** Resolves to the member whose connection is established first, or to `undefined` if there is none in time. */
async function firstConnected(members: readonly Member[]): Promise<Member | undefined> {
  const tried = members.map(async (member) => {
    if (await isConnected(member, CONNECT_MS)) return member;
    throw new Error('not connected');
  });
  return Promise.any(tried).catch(() => undefined);
}

/** The messages of errors after which a write was certainly not executed. The status of the call alone does not show that. */
const NOT_EXECUTED =
  /^No connection established|^Name resolution failed|etcdserver: no leader|etcdserver: too many requests/;

function storageErrorOf(
  error: GrpcError,
  { isWrite, url }: { readonly isWrite: boolean; readonly url: string },
): StorageError {
  return new StorageError(codeOf(error, isWrite), `etcd at ${url} failed: ${error.details || error.message}`, {
    cause: error,
  });
}

function codeOf({ status, details }: GrpcError, isWrite: boolean): StorageErrorCode {
  if (details.includes('database space exceeded')) return 'full';
  if (details.includes('has been compacted')) return 'compacted';
  if (NOT_EXECUTED.test(details)) return 'unavailable';
  switch (status) {
    case 'InvalidArgument':
    case 'NotFound':
      return 'refused';
    case 'PermissionDenied':
    case 'Unauthenticated':
    case 'Unimplemented':
      return 'unusable';
    default:
      return isWrite ? 'unknown-outcome' : 'unavailable';
  }
}
