/**
 * A typed gRPC client of a plugin on this host: calls by a method table with a deadline each, streams of a server's
 * messages, and errors with gRPC's code. gRPC is loaded on first use. Who calls: the plugin manager and the parts that talk
 * to plugins (CSI, devices).
 */
import type { ServiceError } from '@grpc/grpc-js';
import { buildCodecs } from './codec.ts';
import type { IncomingOf, MessageTables, MethodTable, OutgoingOf } from './messages.ts';

/** By gRPC's numbers; names as Go's client writes them. */
const STATUS_NAMES = [
  'OK',
  'Canceled',
  'Unknown',
  'InvalidArgument',
  'DeadlineExceeded',
  'NotFound',
  'AlreadyExists',
  'PermissionDenied',
  'ResourceExhausted',
  'FailedPrecondition',
  'Aborted',
  'OutOfRange',
  'Unimplemented',
  'Internal',
  'Unavailable',
  'DataLoss',
  'Unauthenticated',
] as const;
export type GrpcStatus = (typeof STATUS_NAMES)[number];

export class GrpcError extends Error {
  override readonly name = 'GrpcError';
  readonly status: GrpcStatus;
  /** What the plugin said, without gRPC's prefix. */
  readonly details: string;
  constructor(status: GrpcStatus, details: string, options?: ErrorOptions) {
    super(`rpc error: code = ${status} desc = ${details}`, options);
    this.status = status;
    this.details = details;
  }
}

export interface GrpcCallOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

type Call<M, T extends MethodTable, K extends keyof T> = {
  readonly request: T[K][1] extends keyof M ? OutgoingOf<M, T[K][1]> : never;
  readonly answer: T[K][2] extends keyof M ? IncomingOf<M, T[K][2]> : never;
};

export interface GrpcClient<M extends MessageTables, T extends MethodTable> {
  call<K extends keyof T & string>(
    method: K,
    request: Call<M, T, K>['request'],
    options: GrpcCallOptions,
  ): Promise<Call<M, T, K>['answer']>;
  /** Resolves when the server ends the stream or the signal aborts; throws what broke it. */
  stream<K extends keyof T & string>(
    method: K,
    request: Call<M, T, K>['request'],
    onMessage: (message: Call<M, T, K>['answer']) => void,
    signal: AbortSignal,
  ): Promise<void>;
  close(): void;
}

export interface GrpcEndpoint<M extends MessageTables, T extends MethodTable> {
  /** The path of a unix socket. */
  readonly socket: string;
  /** Only a name of the tables' root: it does not stand on the wire. */
  readonly packageName: string;
  readonly messages: M;
  readonly methods: T;
}

/** Opens no connection yet: the first call does, and each after a break again. */
export async function connectGrpc<const M extends MessageTables, const T extends MethodTable>(
  endpoint: GrpcEndpoint<M, T>,
): Promise<GrpcClient<M, T>> {
  const { default: grpc } = await import('@grpc/grpc-js');
  const codec = await buildCodecs(endpoint.packageName, endpoint.messages);
  const client = new grpc.Client(`unix:${endpoint.socket}`, grpc.credentials.createInsecure(), {
    'grpc.default_authority': 'localhost',
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 3_000,
    // A plugin that was started anew under the same path is another one.
    'grpc.use_local_subchannel_pool': 1,
  });
  const describe = (method: string): readonly [path: string, request: string, answer: string] => {
    const row = endpoint.methods[method];
    if (row === undefined) throw new Error(`${endpoint.packageName} has no method ${method}`);
    return [`/${row[0]}/${method.charAt(0).toUpperCase()}${method.slice(1)}`, row[1], row[2]];
  };

  return {
    call(method, request, { timeoutMs, signal }) {
      const [path, requestName, answerName] = describe(method);
      return new Promise((resolve, reject) => {
        if (signal?.aborted === true) return reject(new GrpcError('Canceled', 'context canceled'));
        const running = client.makeUnaryRequest(
          path,
          (value: object) => codec(requestName).encode(value),
          (bytes: Buffer) => codec(answerName).decode(bytes),
          request as object,
          new grpc.Metadata(),
          { deadline: wallClock() + timeoutMs },
          (error: ServiceError | null, answer?: object) => {
            signal?.removeEventListener('abort', onAbort);
            if (error === null) resolve(answer as never);
            else reject(toGrpcError(error));
          },
        );
        const onAbort = (): void => running.cancel();
        signal?.addEventListener('abort', onAbort, { once: true });
      });
    },
    stream(method, request, onMessage, signal) {
      const [path, requestName, answerName] = describe(method);
      return new Promise((resolve, reject) => {
        const running = client.makeServerStreamRequest(
          path,
          (value: object) => codec(requestName).encode(value),
          (bytes: Buffer) => codec(answerName).decode(bytes),
          request as object,
        );
        const onAbort = (): void => running.cancel();
        signal.addEventListener('abort', onAbort, { once: true });
        if (signal.aborted) running.cancel();
        running.on('data', (message: object) => onMessage(message as never));
        running.on('error', (error: ServiceError) => {
          signal.removeEventListener('abort', onAbort);
          if (signal.aborted) resolve();
          else reject(toGrpcError(error));
        });
        running.on('end', () => {
          signal.removeEventListener('abort', onAbort);
          resolve();
        });
      });
    },
    close: () => client.close(),
  };
}

/** gRPC takes a deadline as a point in time of the wall clock. */
function wallClock(): number {
  return performance.timeOrigin + performance.now();
}

function toGrpcError(error: ServiceError): GrpcError {
  return new GrpcError(STATUS_NAMES[error.code] ?? 'Unknown', error.details, { cause: error });
}
