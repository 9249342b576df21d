/**
 * Runs the servers that probes and hooks of pods on the node's network reach: HTTP, HTTPS and gRPC. They record the requests.
 * They run in their own thread, because the thread of the tests is blocked while kubectl runs, and probes must not wait.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo, Server } from 'node:net';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { serveGrpcHealth } from '../fakes/grpc-health.ts';

/** The status `SERVING` of gRPC's health service. */
export const SERVING = 1;
/** The status `NOT_SERVING` of gRPC's health service. */
export const NOT_SERVING = 2;

interface ServingPair {
  readonly cert: string;
  readonly key: string;
}

interface Ports {
  readonly http: number;
  readonly https: number;
  readonly grpc: number;
}

/** The servers in their thread, and the requests that they have received. */
export class HealthServers {
  /** The requests that this thread has received notifications for, as `http GET /path x-why=…` or `grpc service`. */
  readonly asked: string[] = [];
  readonly ports: Ports;
  readonly #worker: Worker;

  private constructor(worker: Worker, ports: Ports) {
    this.#worker = worker;
    this.ports = ports;
    worker.on('message', (line: string) => this.asked.push(line));
  }

  /** Starts the servers in a thread. `pair` contains the files of a serving certificate. */
  static async start(pair: ServingPair): Promise<HealthServers> {
    const worker = new Worker(import.meta.filename, { workerData: pair });
    const [ports] = (await once(worker, 'message')) as [Ports];
    return new HealthServers(worker, ports);
  }

  /** Sets the response for a path (200 by default) or a gRPC service (SERVING by default). */
  answer(what: string, with_: number): void {
    this.#worker.postMessage([what, with_]);
  }

  async close(): Promise<void> {
    await this.#worker.terminate();
  }
}

async function serve(pair: ServingPair): Promise<void> {
  const answers = new Map<string, number>();
  parentPort?.on('message', ([what, answer]: [string, number]) => answers.set(what, answer));
  const respond =
    (scheme: string) =>
    (request: IncomingMessage, response: ServerResponse): void => {
      const path = request.url ?? '';
      const why = request.headers['x-why'];
      parentPort?.postMessage(`${scheme} ${request.method} ${path}${why === undefined ? '' : ` x-why=${String(why)}`}`);
      response.writeHead(answers.get(path) ?? 200).end('said');
    };
  const http = await listen(createServer(respond('http')));
  const secure = { cert: readFileSync(pair.cert), key: readFileSync(pair.key) };
  const https = await listen(createSecureServer(secure, respond('https')));
  const { port: grpc } = await serveGrpcHealth('0.0.0.0', (service) => {
    parentPort?.postMessage(`grpc ${service}`);
    return answers.get(service) ?? SERVING;
  });
  parentPort?.postMessage({ http, https, grpc } satisfies Ports);
}

async function listen(server: Server): Promise<number> {
  server.listen(0, '0.0.0.0');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

if (!isMainThread) await serve(workerData as ServingPair);
