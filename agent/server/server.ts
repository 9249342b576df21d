/**
 * The agent's HTTP servers: port 10250 with TLS, authentication and authorization; port 10255 for read-only access, if it is
 * enabled; port 10248 for health checks only.
 */
import { certificateKeyHash } from '../../api/pki/public-key-hash.ts';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer as createHttpsServer, Server as HttpsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { SecureContextOptions } from 'node:tls';
import { fastify, type FastifyInstance, type FastifyServerFactory } from 'fastify';
import { createServer as createHttpServer } from '../../api/http/node-http.ts';
import { HealthResults } from '../../api/component/health-results.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { ConnectionLimit, connectionsWithin } from '../../api/http/connection-limit.ts';
import { CostlyHandshakes } from '../../api/http/costly-handshakes.ts';
import { IncompleteHeaders } from '../../api/http/incomplete-headers.ts';
import { UntakenResponses } from '../../api/http/untaken-responses.ts';
import { newStatusError, StatusError } from '../../api/meta/status-error.ts';
import type { Access } from './access.ts';
import type { HttpObserver } from '../resources/statistics/http-metrics.ts';
import { limitedLogger } from '../../api/machinery/limited-logger.ts';
import { ClientTrust } from './client-trust.ts';
import { installHealth, installHealthResults } from './health.ts';
import {
  answerToUnknown,
  installDebuggingDisabled,
  installPrivate,
  installReading,
  type RoutesOptions,
} from './routes.ts';
import { parseTarget } from './request-target.ts';
import { createUpgrades, refuseUpgrade, sniffingHeader, streamTarget } from './streaming/upgrade.ts';
import { ANONYMOUS_USER } from '../../api/meta/system-users.ts';
import { TEXT_TYPE } from '../../api/http/media-types.ts';

/** The addresses, certificates and limits of the servers. */
export interface AgentServerOptions extends RoutesOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly access: Access;
  readonly tls: {
    readonly cert: string;
    readonly key: string;
    readonly clientCa: string | undefined;
    readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
    readonly ciphers: string | undefined;
    /** The key exchange groups in order of preference. */
    readonly groups: string | undefined;
  };
  /** `--enable-server`. Enables the port with TLS. The other ports have their own flags. */
  readonly enabled: boolean;
  readonly address: string;
  readonly port: number;
  /** 0 disables the port. */
  readonly readOnlyPort: number;
  readonly healthAddress: string;
  /** 0 disables the port. */
  readonly healthPort: number;
  /** The value of `--streaming-connection-idle-timeout`. */
  readonly idleTimeoutMs: number;
  /** The maximum size of the incomplete headers of all connections together. */
  readonly headersBudgetBytes?: number;
  /** The maximum number of connections of all ports together. If absent, it follows from the limit of descriptors. */
  readonly maxConnections?: number | undefined;
  /** Called for each request with a valid path, except on the health port. The returned function is called when it ends. */
  readonly observe?: HttpObserver;
}

interface ServedRoute {
  readonly method: string;
  readonly path: string;
}

/** The running servers. */
export interface AgentServer {
  /** The port with TLS, or 0 if it is disabled. */
  readonly port: number;
  /** The routes of the port with TLS. Parameters appear as `:name`. */
  readonly routes: readonly ServedRoute[];
  /** The hash of the public key of the serving certificate (`publicKeyHash`). */
  servingKey(): string;
  replaceCertificate(pair: { readonly certificatePem: string; readonly keyPem: string }): void;
  /** Replaces the CAs (PEM) of client certificates. Open connections stay, and their next requests are verified again. */
  trustClients(ca: string): void;
  close(): Promise<void>;
}

/** The share of the process' descriptors for connections. */
const CONNECTIONS = { atMost: 1000, share: 0.2 };
const HANDSHAKE_TIMEOUT_MS = 10_000;
/** The time within which a client must take a response, once it is complete. */
const TAKE_TIMEOUT_MS = 60_000;
const MAX_BODY_BYTES = 3 << 20;
/** The limit of Go's servers. The command of an exec is part of the request line, so it can be long. */
const MAX_HEADER_BYTES = 1 << 20;

/** Replaces fastify's schema compilers, which load a hundred modules. No route has a schema. */
const noSchemas = (): never => {
  throw new Error('a route of the agent has a schema: let fastify load its own compilers');
};
const NO_SCHEMAS = { buildValidator: () => noSchemas, buildSerializer: () => noSchemas };

/** Starts the agent's HTTP servers. Resolves when all ports listen. Throws an error that names the port if one is in use. */
export async function startAgentServer(serverOptions: AgentServerOptions): Promise<AgentServer> {
  const options = { ...serverOptions, logger: limitedLogger(serverOptions.logger, serverOptions.clock) };
  const { tls } = options;
  // The whole context is set again when one of its members changes.
  let context: SecureContextOptions = {
    cert: tls.cert,
    key: tls.key,
    minVersion: tls.minVersion,
    ...(tls.clientCa === undefined ? {} : { ca: tls.clientCa }),
    ...(tls.ciphers === undefined ? {} : { ciphers: tls.ciphers }),
    ...(tls.groups === undefined ? {} : { ecdhCurve: tls.groups }),
  };
  let servingKey = certificateKeyHash(tls.cert);
  const secure = createHttpsServer({
    ...context,
    requestCert: tls.clientCa !== undefined,
    rejectUnauthorized: false,
    maxHeaderSize: MAX_HEADER_BYTES,
    handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
  });
  new CostlyHandshakes(options).follow(secure);
  const trust = new ClientTrust(options.clock);
  const intake = intakeOf(options);
  const gate = { ...options, limit: intake.limit, trust };
  const main = createApp(secure, intake, options);
  const routes: ServedRoute[] = [];
  main.addHook('onRoute', ({ method, url }) => {
    for (const one of [method].flat()) routes.push({ method: one, path: url });
  });
  observeRequests(main, options.observe, 'readwrite');
  main.addHook('onRequest', async (request) => authorize(gate, request.raw));
  const results = new HealthResults();
  installHealth(main, options.host, results);
  installHealthResults(main, results);
  installReading(main, options);
  installPrivate(main, options);
  const ports = { results, intake, apps: [main] };
  serveUpgrades(secure, intake.headers, gate);
  await main.ready();
  let port = 0;
  try {
    if (options.enabled) port = await listen(secure, options.port, options.address);
    if (options.readOnlyPort > 0) await openReading(options, ports);
    if (options.healthPort > 0) await openHealth(options, ports);
  } catch (error) {
    // An open port would keep the process running, and the next start of the agent would find the port in use.
    await closeAll(ports);
    throw error;
  }
  return {
    port,
    routes,
    servingKey: () => servingKey,
    replaceCertificate(pair) {
      servingKey = certificateKeyHash(pair.certificatePem);
      context = { ...context, cert: pair.certificatePem, key: pair.keyPem };
      secure.setSecureContext(context);
    },
    trustClients(ca) {
      context = { ...context, ca };
      secure.setSecureContext(context);
      trust.replace(ca);
    },
    close: () => closeAll(ports),
  };
}

/** The limits of clients: of connections, of incomplete headers, and of responses that they do not take. */
interface Intake {
  readonly limit: ConnectionLimit;
  readonly headers: IncompleteHeaders;
  readonly untaken: UntakenResponses<ServerResponse>;
}

/** Creates the limits that all ports of the agent share. */
function intakeOf(options: AgentServerOptions): Intake {
  const { clock } = options;
  return {
    limit: new ConnectionLimit({ ...options, most: options.maxConnections ?? connectionsWithin(CONNECTIONS) }),
    headers: new IncompleteHeaders({
      ...options,
      maxHeaderBytes: MAX_HEADER_BYTES,
      budgetBytes: options.headersBudgetBytes,
    }),
    untaken: new UntakenResponses<ServerResponse>({
      clock,
      timeoutMs: TAKE_TIMEOUT_MS,
      breakOff: (response) => void response.destroy(),
    }),
  };
}

/** The ports that are open, and the state that they share. */
interface Ports {
  readonly results: HealthResults;
  readonly intake: Intake;
  readonly apps: FastifyInstance[];
}

async function openReading(options: AgentServerOptions, { results, intake, apps }: Ports): Promise<void> {
  const server = createHttpServer({ maxHeaderSize: MAX_HEADER_BYTES });
  const reading = createApp(server, intake, options);
  observeRequests(reading, options.observe, 'readonly');
  installHealth(reading, options.host, results);
  installHealthResults(reading, results);
  installReading(reading, options);
  installDebuggingDisabled(reading);
  apps.push(reading);
  await reading.ready();
  await listen(server, options.readOnlyPort, options.address);
}

async function openHealth(options: AgentServerOptions, { results, intake, apps }: Ports): Promise<void> {
  const server = createHttpServer({ maxHeaderSize: MAX_HEADER_BYTES });
  const health = createApp(server, intake, options);
  installHealth(health, options.host, results);
  apps.push(health);
  await health.ready();
  await listen(server, options.healthPort, options.healthAddress);
}

async function closeAll({ apps, intake }: Ports): Promise<void> {
  intake.untaken.close();
  for (const app of apps) {
    app.server.closeAllConnections();
    await app.close();
    if (app.server.listening) app.server.close();
  }
}

function createApp(
  server: Server | HttpsServer,
  { limit, headers, untaken }: Intake,
  options: AgentServerOptions,
): FastifyInstance {
  // Connections are counted before the handshake, so that those that send nothing count, too.
  server.on('connection', (socket: Socket) => limit.add(socket));
  server.on(server instanceof HttpsServer ? 'secureConnection' : 'connection', (socket: Socket) => headers.add(socket));
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    headers.received(request);
    untaken.add(response);
    response.once('close', () => untaken.delete(response));
  });
  const isReadOnly = !(server instanceof HttpsServer);
  const serverFactory: FastifyServerFactory = (handler) => {
    server.on('request', handler);
    return server as Server;
  };
  const app = fastify({
    serverFactory,
    bodyLimit: MAX_BODY_BYTES,
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    schemaController: { compilersFactory: NO_SCHEMAS },
    routerOptions: { maxParamLength: 512 },
  });
  // Rejects a path that could be parsed differently, before any other hook or handler sees it.
  app.addHook('onRequest', async (request) => {
    parseTarget(request.url);
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
  // Removes the charset that the framework adds: the kubelet sends none, because JSON is always UTF-8.
  app.addHook('onSend', async (_request, reply, payload) => {
    if (reply.getHeader('content-type') === 'application/json; charset=utf-8')
      reply.header('content-type', 'application/json');
    return payload;
  });
  app.setNotFoundHandler((request, reply) => {
    const {
      code,
      headers: fields,
      body,
    } = answerToUnknown(request.method, parseTarget(request.url).path.decoded, isReadOnly);
    return reply.code(code).headers(fields).send(body);
  });
  app.setErrorHandler((error, _request, reply) => {
    if (error instanceof StatusError)
      return reply
        .code(error.code)
        .headers({ 'content-type': TEXT_TYPE, ...sniffingHeader(error.message) })
        .send(error.message);
    const { statusCode, message } = error as { statusCode?: number; message: string };
    if (statusCode === undefined || statusCode >= 500)
      options.logger.error({ err: error }, 'A request to the agent failed');
    return reply
      .code(statusCode ?? 500)
      .type(TEXT_TYPE)
      .send(message);
  });
  return app;
}

function observeRequests(
  app: FastifyInstance,
  observe: AgentServerOptions['observe'],
  serverType: 'readwrite' | 'readonly',
): void {
  if (observe === undefined) return;
  app.addHook('onRequest', (request, reply, done) => {
    const end = observe({ method: request.method, path: parseTarget(request.url).path.decoded, serverType });
    reply.raw.once('close', end);
    done();
  });
}

/** The parts that decide which clients may use the server. */
interface Gate {
  readonly access: Access;
  readonly logger: Logger;
  readonly limit: ConnectionLimit;
  readonly trust: ClientTrust;
}

/**
 * Throws 401 for a client that is not authenticated, 403 for one that is not allowed each of the methods, 429 if too many
 * tokens wait for their reviews, and 500 if the API server does not decide on the permission.
 */
async function authorize(
  { access, logger, limit, trust }: Gate,
  request: IncomingMessage,
  methods: readonly string[] = [request.method ?? 'GET'],
): Promise<void> {
  const user = await access
    .authenticate(request, { isTrusted: trust.isTrusted(request.socket) })
    .catch((error: unknown) => {
      if (error instanceof StatusError && error.code === 429) throw error;
      logger.error({ err: error }, 'Cannot authenticate a request');
      return undefined;
    });
  if (user === undefined) throw newStatusError(401, 'Unauthorized', 'Unauthorized');
  const path = parseTarget(request.url).path.decoded;
  for (const method of methods) {
    const refusal = await access.refusal(user, method, path).catch((error: unknown) => {
      logger.error({ err: error, user: user.name }, 'Cannot authorize a request');
      throw newStatusError(500, 'InternalError', `Authorization error (user=${user.name}, path=${path})`);
    });
    if (refusal !== '') throw newStatusError(403, 'Forbidden', refusal.trimEnd());
  }
  if (user.name !== ANONYMOUS_USER) limit.proven(request.socket);
}

/** The subresources of pods in the metrics of WebSockets, by the first part of the path. */
const SUBRESOURCES: ReadonlyMap<string, 'exec' | 'attach' | 'portforward'> = new Map([
  ['exec', 'exec'],
  ['attach', 'attach'],
  ['portForward', 'portforward'],
]);

function serveUpgrades(server: HttpsServer, headers: IncompleteHeaders, options: AgentServerOptions & Gate): void {
  const upgrade = createUpgrades(options);
  server.on('upgrade', (request, socket, head) => {
    headers.remove(request.socket);
    socket.on('error', () => socket.destroy());
    const serve = async (): Promise<void> => {
      const parsed = parseTarget(request.url);
      const target = streamTarget(parsed);
      const isWebSocket = request.headers.upgrade?.toLowerCase() === 'websocket';
      const end = options.observe?.({
        method: request.method ?? 'GET',
        path: parsed.path.decoded,
        serverType: 'readwrite',
        webSocket: isWebSocket ? SUBRESOURCES.get(target?.action ?? '') : undefined,
      });
      if (end !== undefined) socket.once('close', end);
      if (target === undefined) throw newStatusError(404, 'NotFound', '404 page not found\n');
      // WebSocket clients open a stream by GET: the permission to read alone must not run commands.
      await authorize(options, request, [...new Set([request.method ?? 'GET', 'POST'])]);
      if (!options.debugHandlers) throw newStatusError(405, 'MethodNotAllowed', 'Debug endpoints are disabled.\n');
      await upgrade(request, socket, head, target);
    };
    serve().catch((error: unknown) => refuseUpgrade(socket, error));
  });
}

function listen(server: Server | HttpsServer, port: number, address: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(error.code === 'EADDRINUSE' ? new Error(`port ${port} is in use on ${address}`, { cause: error }) : error);
    });
    server.listen(port, address, () => resolve((server.address() as AddressInfo).port));
  });
}
