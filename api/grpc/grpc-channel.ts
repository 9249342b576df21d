/**
 * Implements the gRPC client of agent and control plane: a connection to one server, and calls with bytes.
 *
 * A message is bounded by `largestMessageBytes` (also after decompression), and the message of an error by `GrpcError`.
 */
import { isIP } from 'node:net';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import type * as Grpc from '@grpc/grpc-js';
import type { Client, ClientReadableStream, ServiceError } from '@grpc/grpc-js';
import { systemClock } from '../machinery/clock.ts';
import { GrpcError, statusOf } from './grpc-error.ts';

interface ChannelOptions {
  /** The address of the server: `unix:/run/a.sock` or `host:port`. */
  readonly target: string;
  /** The maximum size of a message in either direction. The default is 4 MiB, as in gRPC for Go. */
  readonly largestMessageBytes?: number;
  readonly userAgent?: string;
  /** The keys and certificates. Without them, the connection is not encrypted. */
  readonly tls?: GrpcTls | undefined;
  /** How often the server of a connection with running calls is pinged. The default is never. */
  readonly keepaliveMs?: number;
}

/** Certificates and a key in PEM. Without `ca`, the CAs of Node.js are trusted. */
export interface GrpcTls {
  readonly ca?: Buffer | undefined;
  readonly cert?: Buffer | undefined;
  readonly key?: Buffer | undefined;
}

/** The limits of one call. */
export interface GrpcCallOptions {
  /** 0 means no deadline. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** The settings of one stream. */
export interface GrpcStreamOptions {
  readonly signal: AbortSignal;
  /** Called when the server has accepted the call. */
  readonly onOpen?: (() => void) | undefined;
  readonly metadata?: Readonly<Record<string, string>>;
  /** Whether the client's side of the stream stays open after the request. etcd's watches need it. */
  readonly staysOpen?: boolean;
}

/** The connection to one server. It reconnects by itself. */
export interface GrpcChannel {
  call(path: string, request: Buffer, options: GrpcCallOptions): Promise<Buffer>;
  /**
   * Resolves when the server ends the stream or the signal aborts. An error of the server, or one that `onMessage` throws, ends
   * the call and rejects. No further message is read while the promise of `onMessage` is pending.
   */
  stream(
    path: string,
    request: Buffer,
    onMessage: (message: Buffer) => void | Promise<void>,
    options: GrpcStreamOptions,
  ): Promise<void>;
  /** Resolves to whether the connection is established within this time. */
  connected(timeoutMs: number): Promise<boolean>;
  close(): void;
}

const MESSAGE_BYTES = 4 * 1024 * 1024;

/** Creates a channel, which connects with its first call. */
export async function openChannel(options: ChannelOptions): Promise<GrpcChannel> {
  const { default: grpc } = await import('@grpc/grpc-js');
  const client = openClient(grpc, options);
  const identity = (bytes: Buffer): Buffer => bytes;
  return {
    call(path, request, { timeoutMs, signal }) {
      return new Promise((resolve, reject) => {
        if (signal?.aborted === true) return reject(cancelled());
        const running = client.makeUnaryRequest(
          path,
          identity,
          identity,
          request,
          new grpc.Metadata(),
          timeoutMs > 0 ? { deadline: deadline(timeoutMs) } : {},
          (error: ServiceError | null, answer?: Buffer) => {
            signal?.removeEventListener('abort', onAbort);
            if (error === null) resolve(answer ?? Buffer.alloc(0));
            else reject(signal?.aborted === true ? cancelled() : toGrpcError(error));
          },
        );
        const onAbort = (): void => running.cancel();
        signal?.addEventListener('abort', onAbort, { once: true });
      });
    },
    stream(path, request, onMessage, { signal, onOpen, metadata: pairs = {}, staysOpen = false }) {
      const metadata = new grpc.Metadata();
      for (const [name, value] of Object.entries(pairs)) metadata.set(name, value);
      return new Promise((resolve, reject) => {
        const start = (): ClientReadableStream<Buffer> => {
          if (!staysOpen) return client.makeServerStreamRequest(path, identity, identity, request, metadata);
          const both = client.makeBidiStreamRequest(path, identity, identity, metadata);
          both.write(request);
          return both;
        };
        const running = start();
        const onAbort = (): void => running.cancel();
        const finish = (error?: unknown): void => {
          signal.removeEventListener('abort', onAbort);
          if (error === undefined || signal.aborted) resolve();
          else reject(error);
        };
        signal.addEventListener('abort', onAbort, { once: true });
        if (signal.aborted) running.cancel();
        if (onOpen !== undefined) running.on('metadata', onOpen);
        const fail = (error: unknown): void => {
          finish(error);
          running.cancel();
        };
        running.on('data', (message: Buffer) => {
          try {
            const busy = onMessage(message);
            if (!(busy instanceof Promise)) return;
            running.pause();
            busy.then(() => running.resume(), fail);
          } catch (error) {
            fail(error);
          }
        });
        running.on('error', (error: ServiceError) => finish(toGrpcError(error)));
        running.on('end', () => finish());
      });
    },
    connected: (timeoutMs) =>
      new Promise((resolve) => client.waitForReady(deadline(timeoutMs), (error) => resolve(error === undefined))),
    close: () => client.close(),
  };
}

function openClient(grpc: Pick<typeof Grpc, 'Client' | 'credentials'>, options: ChannelOptions): Client {
  const { target, largestMessageBytes = MESSAGE_BYTES, userAgent, tls, keepaliveMs } = options;
  const { credentials } = grpc;
  const address = addressOf(target);
  const verify = address === undefined ? {} : { checkServerIdentity: ofAddress(address) };
  const secured =
    tls === undefined
      ? credentials.createInsecure()
      : credentials.createSsl(tls.ca ?? null, tls.key ?? null, tls.cert ?? null, verify);
  return new grpc.Client(target, secured, {
    // gRPC sends the host as the server's name, which TLS does not permit for an address. The certificate is checked for the
    // address all the same.
    ...(tls === undefined || address === undefined ? {} : { 'grpc.ssl_target_name_override': 'address.invalid' }),
    ...(target.startsWith('unix:') ? { 'grpc.default_authority': 'localhost' } : {}),
    ...(userAgent === undefined ? {} : { 'grpc.primary_user_agent': userAgent }),
    ...(keepaliveMs === undefined
      ? {}
      : { 'grpc.keepalive_time_ms': keepaliveMs, 'grpc.keepalive_timeout_ms': keepaliveMs }),
    'grpc.max_receive_message_length': largestMessageBytes,
    'grpc.max_send_message_length': largestMessageBytes,
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 3_000,
    // Each channel has a connection of its own, because a server that restarted under the same path is another server.
    'grpc.use_local_subchannel_pool': 1,
  });
}

/** Returns the host of a target that is an IP address and not a name. */
function addressOf(target: string): string | undefined {
  const host = target.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1');
  return isIP(host) === 0 ? undefined : host;
}

const ofAddress =
  (address: string) =>
  (_name: string, certificate: PeerCertificate): Error | undefined =>
    checkServerIdentity(address, certificate);

/**
 * Returns a deadline in milliseconds of the wall clock, as gRPC compares it. The wall clock may have been set since the start
 * of the process.
 */
const deadline = (timeoutMs: number): number => systemClock.now() + timeoutMs;

function cancelled(): GrpcError {
  return new GrpcError('Canceled', 'context canceled');
}

function toGrpcError(error: ServiceError): GrpcError {
  return new GrpcError(statusOf(error.code), error.details, { cause: error });
}
