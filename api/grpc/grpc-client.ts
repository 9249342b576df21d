/**
 * Calls a gRPC server, mostly a plugin on this host. The client makes calls by a method table, each with a deadline, and reads
 * streams of messages over a channel (`grpc-channel.ts`).
 */
import { capitalized } from '../meta/capitalized.ts';
import { buildCodecs } from './codec.ts';
import { type GrpcCallOptions, type GrpcChannel, type GrpcStreamOptions, openChannel } from './grpc-channel.ts';
import { GrpcError } from './grpc-error.ts';
import type { IncomingOf, MessageTables, MethodTable, OutgoingOf } from './messages.ts';

type Call<M, T extends MethodTable, K extends keyof T> = {
  readonly request: T[K][1] extends keyof M ? OutgoingOf<M, T[K][1]> : never;
  readonly answer: T[K][2] extends keyof M ? IncomingOf<M, T[K][2]> : never;
};

/** A client for the methods of a table. Rejects with a `GrpcError`. */
export interface GrpcClient<M extends MessageTables, T extends MethodTable> {
  call<K extends keyof T & string>(
    method: K,
    request: Call<M, T, K>['request'],
    options: GrpcCallOptions,
  ): Promise<Call<M, T, K>['answer']>;
  /**
   * Resolves when the server ends the stream or the signal aborts. Rejects with the error that broke it. No further message is
   * read while the promise of `onMessage` is pending.
   */
  stream<K extends keyof T & string>(
    method: K,
    request: Call<M, T, K>['request'],
    onMessage: (message: Call<M, T, K>['answer']) => void | Promise<void>,
    options: GrpcStreamOptions,
  ): Promise<void>;
  close(): void;
}

/**
 * Measures calls. It is called with the path of a method, such as `/csi.v1.Node/NodeGetInfo`, and returns the function to call
 * with gRPC's status at the end: `OK`, or that of the error.
 */
export type GrpcCallObserver = (path: string) => (status: string) => void;

interface GrpcInterface<M extends MessageTables, T extends MethodTable> {
  readonly messages: M;
  readonly methods: T;
  readonly observe?: GrpcCallObserver;
}

interface GrpcEndpoint<M extends MessageTables, T extends MethodTable> extends GrpcInterface<M, T> {
  /** The path of a unix socket. */
  readonly socket: string;
}

/** Creates the client of a server, which connects with its first call. */
export async function connectGrpc<const M extends MessageTables, const T extends MethodTable>(
  endpoint: GrpcEndpoint<M, T>,
): Promise<GrpcClient<M, T>> {
  return grpcClient(await openChannel({ target: `unix:${endpoint.socket}` }), endpoint);
}

/** Makes the calls of an interface over a channel, which `close` closes. */
export function grpcClient<const M extends MessageTables, const T extends MethodTable>(
  channel: GrpcChannel,
  endpoint: GrpcInterface<M, T>,
): GrpcClient<M, T> {
  const codec = buildCodecs(endpoint.messages);
  const describe = (method: string): readonly [path: string, request: string, answer: string] => {
    const row = endpoint.methods[method];
    if (row === undefined) throw new Error(`the interface has no method ${method}`);
    return [`/${row[0]}/${capitalized(method)}`, row[1], row[2]];
  };
  const decode = (message: string, bytes: Buffer): object => {
    try {
      return codec(message).decode(bytes);
    } catch (error) {
      throw new GrpcError('Internal', `the response is not a valid ${message}`, { cause: error });
    }
  };
  return {
    async call(method, request, options) {
      const [path, requestName, answerName] = describe(method);
      const ended = endpoint.observe?.(path);
      try {
        const answer = await channel.call(path, codec(requestName).encode(request as object), options);
        const decoded = decode(answerName, answer);
        ended?.('OK');
        return decoded as never;
      } catch (error) {
        ended?.(error instanceof GrpcError ? error.status : 'Unknown');
        throw error;
      }
    },
    async stream(method, request, onMessage, options) {
      const [path, requestName, answerName] = describe(method);
      const encoded = codec(requestName).encode(request as object);
      await channel.stream(path, encoded, (bytes) => onMessage(decode(answerName, bytes) as never), options);
    },
    close: () => channel.close(),
  };
}
