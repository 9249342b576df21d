/**
 * Implements gRPC's health service (`grpc.health.v1`). Its messages are so short that they are encoded by hand: field 1 of the
 * request is the name of a service.
 */
import { Server, ServerCredentials } from '@grpc/grpc-js';

/** Returns the ServingStatus of a service (1 is serving, 2 is not serving, and 0 is omitted on the wire), or an error. */
export type HealthAnswer = (service: string) => number | { readonly code: number; readonly details: string };

/** Serves on a free port until `close` is called. `answer` decides by the name of the service. */
export async function serveGrpcHealth(
  host: string,
  answer: HealthAnswer,
): Promise<{ readonly port: number; readonly close: () => void }> {
  const identity = (value: Buffer): Buffer => value;
  const check = {
    path: '/grpc.health.v1.Health/Check',
    requestStream: false,
    responseStream: false,
    requestSerialize: identity,
    requestDeserialize: identity,
    responseSerialize: identity,
    responseDeserialize: identity,
  } as const;
  const server = new Server();
  server.addService(
    { check },
    {
      check: (call: { request: Buffer }, done: (error: object | null, value?: Buffer) => void) => {
        const reply = answer(call.request.subarray(2).toString());
        if (typeof reply === 'number') done(null, Buffer.from(reply === 0 ? [] : [8, reply]));
        else done(reply);
      },
    },
  );
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync(`${host}:0`, ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    ),
  );
  return { port, close: () => server.forceShutdown() };
}
