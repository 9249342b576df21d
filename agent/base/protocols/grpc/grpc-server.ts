/** Serves gRPC on a unix socket, by the same message tables as the client. */
import { chmod, mkdir, rm } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import type { ServerWritableStream, ServiceDefinition, UntypedServiceImplementation } from '@grpc/grpc-js';
import { capitalized } from '../../../../api/meta/capitalized.ts';
import { errorMessage } from '../../../../api/meta/error-message.ts';
import { descriptorPath, inDirectory, removeTree } from '../../files/beneath.ts';
import { buildCodecs } from '../../../../api/grpc/codec.ts';
import type { MessageTables, MethodTable } from '../../../../api/grpc/messages.ts';

/** An error with a gRPC status code and a message for the client. Any other error becomes `Unknown`. */
export class GrpcRefusal extends Error {
  override readonly name = 'GrpcRefusal';
  readonly code: number;
  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** Status codes that handlers throw. The numbers are those of gRPC. */
export const GRPC_INVALID_ARGUMENT = 3;
/** The status of a call that exceeds a limit of the server, for example of registered plugins. */
export const GRPC_RESOURCE_EXHAUSTED = 8;
const GRPC_UNKNOWN = 2;

type Handler = (request: never) => object | Promise<object>;
/** Sends messages until the signal aborts. The stream ends when the promise resolves. */
type StreamHandler = (request: never, send: (message: object) => void, signal: AbortSignal) => Promise<void>;

interface ServedService {
  readonly messages: MessageTables;
  readonly methods: MethodTable;
  readonly handlers: Readonly<Record<string, Handler>>;
  readonly streams?: Readonly<Record<string, StreamHandler>>;
}

interface ServedSocket {
  readonly socket: string;
  readonly services: readonly ServedService[];
}

/**
 * Serves the services, and replaces the socket of an earlier process. Resolves, once the server listens, to a function that
 * stops it. Rejects if it cannot listen, or if something else takes the place of the socket.
 */
export async function serveGrpc({ socket, services }: ServedSocket): Promise<() => Promise<void>> {
  const { default: grpc } = await import('@grpc/grpc-js');
  const { Server, ServerCredentials } = grpc;
  const server = new Server();
  for (const service of services) server.addService(...definitionOf(service));
  await mkdir(dirname(socket), { recursive: true, mode: 0o750 });
  await removeTree(socket);
  await new Promise<void>((resolve, reject) =>
    server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
      error === null ? resolve() : reject(error),
    ),
  );
  await openToGroup(socket);
  return async () => {
    server.forceShutdown();
    await rm(socket, { force: true });
  };
}

/**
 * Lets the group of the socket use it. Others can write to the folders of some sockets, so a link that takes the place of the
 * socket must not get its mode.
 */
async function openToGroup(socket: string): Promise<void> {
  await inDirectory(dirname(socket), async (directory) => {
    const pinned = await directory.pin(basename(socket));
    try {
      if (!(await pinned.stat()).isSocket()) throw new Error(`${socket} is no longer the socket of this agent`);
      await chmod(descriptorPath(pinned), 0o660);
    } finally {
      await pinned.close();
    }
  });
}

function definitionOf(service: ServedService): [ServiceDefinition, UntypedServiceImplementation] {
  const codec = buildCodecs(service.messages);
  const definition: Record<string, ServiceDefinition[string]> = {};
  const implementation: UntypedServiceImplementation = {};
  for (const [name, [path, request, answer]] of Object.entries(service.methods)) {
    const unary = service.handlers[name];
    const stream = service.streams?.[name];
    if (unary === undefined && stream === undefined) continue;
    definition[name] = {
      path: `/${path}/${capitalized(name)}`,
      requestStream: false,
      responseStream: stream !== undefined,
      requestSerialize: (value: object) => codec(request).encode(value),
      requestDeserialize: (bytes) => codec(request).decode(bytes),
      responseSerialize: (value: object) => codec(answer).encode(value),
      responseDeserialize: (bytes) => codec(answer).decode(bytes),
    };
    if (unary !== undefined) implementation[name] = answerOnce(unary);
    else if (stream !== undefined) implementation[name] = answerMany(stream);
  }
  return [definition, implementation];
}

function answerOnce(handler: Handler) {
  return (call: { readonly request: object }, done: (error: object | null, value?: object) => void): void => {
    Promise.resolve()
      .then(() => handler(call.request as never))
      .then(
        (value) => done(null, value),
        (error: unknown) => done(statusOf(error)),
      );
  };
}

function answerMany(handler: StreamHandler) {
  return (call: ServerWritableStream<object, object>): void => {
    const abort = new AbortController();
    call.on('cancelled', () => abort.abort());
    handler(call.request as never, (message) => void call.write(message), abort.signal).then(
      () => call.end(),
      (error: unknown) => call.destroy(Object.assign(new Error(), statusOf(error))),
    );
  };
}

function statusOf(error: unknown): { readonly code: number; readonly details: string } {
  return {
    code: error instanceof GrpcRefusal ? error.code : GRPC_UNKNOWN,
    details: errorMessage(error),
  };
}
