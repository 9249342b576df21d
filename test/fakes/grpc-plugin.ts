/**
 * Runs a gRPC server for plugins on a unix socket. It uses the same message tables as the agent's client, and real bytes on the
 * socket.
 */
import { rm } from 'node:fs/promises';
import { Server, ServerCredentials, type ServiceDefinition, type UntypedServiceImplementation } from '@grpc/grpc-js';
import { buildCodecs } from '../../api/grpc/codec.ts';
import type { MessageTables, MethodTable } from '../../api/grpc/messages.ts';

/** An error with gRPC's status code. */
export class PluginError extends Error {
  readonly code: number;
  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** The methods of a service by name, each from its request to its response. */
export type PluginMethods = Readonly<Record<string, (request: never) => object | Promise<object>>>;

export interface GrpcService {
  readonly messages: MessageTables;
  readonly methods: MethodTable;
  /** Missing methods respond with Unimplemented. */
  readonly implementation: PluginMethods;
}

/** Serves the services on a socket. Resolves to a function that stops the server. */
export async function serveGrpc(socket: string, services: readonly GrpcService[]): Promise<() => Promise<void>> {
  const server = new Server();
  for (const { messages, methods, implementation } of services) {
    const codec = buildCodecs(messages);
    const definition: Record<string, ServiceDefinition[string]> = {};
    const handlers: UntypedServiceImplementation = {};
    for (const [name, [service, request, answer]] of Object.entries(methods)) {
      const run = implementation[name];
      if (run === undefined) continue;
      definition[name] = {
        path: `/${service}/${name.charAt(0).toUpperCase()}${name.slice(1)}`,
        requestStream: false,
        responseStream: false,
        requestSerialize: (value: object) => codec(request).encode(value),
        requestDeserialize: (bytes) => codec(request).decode(bytes),
        responseSerialize: (value: object) => codec(answer).encode(value),
        responseDeserialize: (bytes) => codec(answer).decode(bytes),
      };
      handlers[name] = (call: { request: object }, done: (error: object | null, value?: object) => void) => {
        Promise.resolve()
          .then(() => run(call.request as never))
          .then(
            (value) => done(null, value),
            (error: Error) => done({ code: error instanceof PluginError ? error.code : 2, details: error.message }),
          );
      };
    }
    server.addService(definition, handlers);
  }
  await rm(socket, { force: true });
  await new Promise<void>((resolve, reject) =>
    server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
      error === null ? resolve() : reject(error),
    ),
  );
  return async () => {
    server.forceShutdown();
    await rm(socket, { force: true });
  };
}
