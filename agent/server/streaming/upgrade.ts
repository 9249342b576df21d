/** Handles upgrade requests to the agent's server: exec, attach and port forwarding over SPDY or WebSocket. */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { createWebSocketStream, type WebSocket, WebSocketServer } from 'ws';
import type { Logger } from '../../../api/component/logger.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { newBadRequest, newStatusError, StatusError } from '../../../api/meta/status-error.ts';
import { connectionsWithin } from '../../../api/http/connection-limit.ts';
import { answerPings, boundedServer } from '../../../api/http/websocket.ts';
import type { PodHost, RequestedContainer } from '../pod-host.ts';
import type { ContainerId } from '../../runtime/runtime-identity.ts';
import type { StreamIo } from '../../runtime/runtime.ts';
import { ForwardedConnections } from './forwarded-connections.ts';
import { HeldMemory } from './held-memory.ts';
import {
  forwardOverChannels,
  forwardOverSpdy,
  type PodPorts,
  PORT_FORWARD_CHANNELS,
  PORT_FORWARD_PROTOCOL,
  TUNNEL_PROTOCOL,
} from './port-forward.ts';
import type { CommandOutcome, RemoteCommand, WantedStreams } from './remote-command.ts';
import { acceptSpdyCommand, negotiateProtocol, type UpgradeRequest } from './spdy-command.ts';
import { acceptWebSocketCommand, WEBSOCKET_PROTOCOLS } from './websocket-command.ts';
import type { RequestTarget } from '../request-target.ts';
import { TEXT_TYPE } from '../../../api/http/media-types.ts';
import { quoteText } from '../../../api/meta/quote.ts';

interface UpgradeOptions {
  readonly host: PodHost;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The value of `--streaming-connection-idle-timeout`. */
  readonly idleTimeoutMs: number;
}

/** The options with the state of all upgraded connections. */
interface Upgrades extends UpgradeOptions {
  readonly forwarded: ForwardedConnections;
  readonly memory: HeldMemory;
}

interface Target extends RequestedContainer {
  readonly action: 'exec' | 'attach' | 'portForward' | 'run';
  readonly query: URLSearchParams;
}

const PATHS = /^\/(exec|attach|portForward)\/([^/]+)\/([^/]+)(?:\/([^/]+))?(?:\/([^/]+))?$/;

/**
 * Parses `/exec/<ns>/<pod>[/<uid>]/<container>`, the same with `/attach`, and `/portForward/<ns>/<pod>[/<uid>]`. Returns
 * `undefined` for another path.
 */
export function streamTarget({ path, query }: RequestTarget): Target | undefined {
  const [, action, namespace, pod, third, fourth] = PATHS.exec(path.decoded) ?? [];
  if (action === undefined || namespace === undefined || pod === undefined) return undefined;
  const decoded = [third, fourth].filter((part) => part !== undefined);
  const isForward = action === 'portForward';
  if (isForward ? decoded.length > 1 : decoded.length === 0) return undefined;
  return {
    action: action as Target['action'],
    namespace,
    pod,
    uid: isForward ? (decoded[0] ?? '') : decoded.length === 2 ? (decoded[0] ?? '') : '',
    container: isForward ? '' : (decoded.at(-1) ?? ''),
    query: new URLSearchParams(query),
  };
}

/** The options of the WebSocket servers. A message may come in packets of a kilobyte, and in fragments of 64 KiB. */
const WEBSOCKET_OPTIONS = boundedServer({ maxPayload: 4 << 20, maxFragments: 256, maxBufferedChunks: 8192 });
/** The maximum size of what all streaming connections hold. */
const MAX_HELD_BYTES = 128 << 20;

/** A request to upgrade its connection, with the stream that it asks for. */
interface Upgrade extends UpgradeRequest {
  readonly target: Target;
  readonly onHeld: (bytes: number) => void;
  /** Called with the number of bytes of an incomplete WebSocket message. */
  readonly onPartial: (bytes: number) => void;
}

/**
 * Returns the handler of `upgrade` events. It rejects if it cannot serve the stream; if it has not upgraded the connection
 * before, the caller must answer the error (`refuseUpgrade`).
 */
export function createUpgrades(
  upgradeOptions: UpgradeOptions,
  maxHeldBytes = MAX_HELD_BYTES,
): (request: IncomingMessage, socket: Duplex, head: Buffer, target: Target) => Promise<void> {
  const options: Upgrades = {
    ...upgradeOptions,
    forwarded: new ForwardedConnections(connectionsWithin(FORWARDED)),
    memory: new HeldMemory(maxHeldBytes),
  };
  const sockets = new WebSocketServer({
    ...WEBSOCKET_OPTIONS,
    handleProtocols: (offered) => [...offered].find((protocol) => CHANNEL_PROTOCOLS.has(protocol)) ?? false,
  });
  const tunnels = createTunnelServer();
  return async (request, socket, head, target) => {
    watchIdle(socket, options.idleTimeoutMs);
    socket.on('error', () => socket.destroy());
    const memory = options.memory.open(target.namespace, () => socket.destroy());
    socket.once('close', memory.close);
    const upgrade = { request, socket, head, target, onHeld: memory.part(), onPartial: memory.part() };
    const isWebSocket = (request.headers.upgrade ?? '').toLowerCase() === 'websocket';
    const offered = (request.headers['sec-websocket-protocol'] ?? '').split(/, */);
    const isSupported = (protocol: string): boolean => CHANNEL_PROTOCOLS.has(protocol) || protocol === TUNNEL_PROTOCOL;
    if (isWebSocket && offered[0] !== '' && !offered.some(isSupported)) throw newStatusError(403, 'Forbidden', '');
    if (target.action === 'portForward' && isWebSocket && offered.includes(TUNNEL_PROTOCOL)) {
      delete request.headers['sec-websocket-protocol'];
      await serveTunnel(options, upgrade, tunnels);
    } else if (target.action === 'portForward') await serveForward(options, upgrade, isWebSocket ? sockets : undefined);
    else await serveCommand(options, upgrade, isWebSocket ? sockets : undefined);
  };
}

const CHANNEL_PROTOCOLS: ReadonlySet<string> = new Set([...WEBSOCKET_PROTOCOLS, ...PORT_FORWARD_CHANNELS]);

/**
 * Creates the WebSocket server of tunnels. It adds the subprotocol to the response itself, because the name has a slash, which
 * RFC 6455 does not allow, and the library rejects it.
 */
function createTunnelServer(): WebSocketServer {
  const server = new WebSocketServer(WEBSOCKET_OPTIONS);
  server.on('headers', (headers) => headers.push(`Sec-WebSocket-Protocol: ${TUNNEL_PROTOCOL}`));
  return server;
}

function watchIdle(socket: Duplex, idleTimeoutMs: number): void {
  if (idleTimeoutMs > 0 && 'setTimeout' in socket)
    (socket as unknown as { setTimeout(ms: number, done: () => void): void }).setTimeout(idleTimeoutMs, () =>
      socket.destroy(),
    );
}

function openWebSocket(server: WebSocketServer, { request, socket, head, onPartial }: Upgrade): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    socket.once('close', () => reject(new Error('the client is gone')));
    server.handleUpgrade(request, socket, head, (opened) => {
      answerPings(opened);
      let bytes = 0;
      socket.on('data', (chunk: Buffer) => onPartial((bytes += chunk.length)));
      opened.on('message', () => onPartial((bytes = 0)));
      resolve(opened);
    });
  });
}

/**
 * Returns the streams that the query of an exec or attach asks for, by the parameters that the API server sends. Throws a
 * `StatusError` with code 400 for none.
 */
export function wantedStreams(query: URLSearchParams): WantedStreams {
  const on = (name: string): boolean => query.get(name) === '1';
  const wanted = { stdin: on('input'), stdout: on('output'), stderr: on('error'), tty: on('tty') };
  if (!wanted.stdin && !wanted.stdout && !wanted.stderr)
    throw newBadRequest('you must specify at least 1 of stdin, stdout, stderr');
  return wanted;
}

/** Returns the container of a command. Throws the kubelet's errors, which differ between exec and attach. */
export async function commandContainer(host: PodHost, target: Omit<Target, 'query'>): Promise<ContainerId> {
  const id = await host.runningContainer(target);
  if (id !== undefined) return id;
  const { action, namespace, pod, container } = target;
  const message =
    action === 'attach'
      ? `container ${container} not found in pod ${pod}_${namespace}`
      : `container not found ("${container}")`;
  throw newStatusError(500, 'InternalError', message);
}

/** Serves an exec or attach until it ends. Reports a failure after the upgrade to the client by the protocol. */
async function serveCommand(
  options: UpgradeOptions,
  upgrade: Upgrade,
  sockets: WebSocketServer | undefined,
): Promise<void> {
  const { target } = upgrade;
  const { host, clock, logger } = options;
  const wanted = wantedStreams(target.query);
  // This runs before the upgrade, so that a missing pod or container is reported by a status code.
  const id = await commandContainer(host, target);
  const command: RemoteCommand =
    sockets === undefined
      ? await acceptSpdyCommand(upgrade, wanted, clock)
      : acceptWebSocketCommand(await openWebSocket(sockets, upgrade), wanted, upgrade.onHeld);
  const io: StreamIo = {
    ...(command.stdin === undefined ? {} : { stdin: command.stdin }),
    ...(command.stdout === undefined ? {} : { stdout: command.stdout }),
    ...(command.stderr === undefined ? {} : { stderr: command.stderr }),
    tty: wanted.tty,
    resize: command.resize,
    signal: command.signal,
  };
  let outcome: CommandOutcome;
  try {
    if (target.action === 'attach') {
      await host.attach(id, io);
      outcome = { state: 'exited', exitCode: 0 };
    } else {
      outcome = { state: 'exited', exitCode: await host.exec(id, target.query.getAll('command'), io) };
    }
  } catch (error) {
    const message = errorMessage(error);
    if (!command.signal.aborted)
      logger.debug({ pod: `${target.namespace}/${target.pod}`, err: error }, 'A command in a container failed');
    const prefix = target.action === 'attach' ? 'error attaching to container' : 'error executing command in container';
    outcome = { state: 'failed', message: `${prefix}: ${message}` };
  }
  await command.finish(outcome);
}

/** The share of the process' descriptors for forwarded connections. */
const FORWARDED = { atMost: 1000, share: 0.2 };

async function forwardTarget({ host, clock, forwarded }: Upgrades, { target, onHeld }: Upgrade): Promise<PodPorts> {
  const id = await host.resolveSandbox(target.namespace, target.pod, target.uid);
  return {
    clock,
    onHeld,
    hold: (evict) => forwarded.hold(target.namespace, evict),
    dial: (port, signal) => forwarded.dial(target.namespace, signal, (either) => host.portForward(id, port, either)),
    describe: (port, error) => `error forwarding port ${port} to pod ${id}, uid : ${errorMessage(error)}`,
  };
}

async function serveTunnel(options: Upgrades, upgrade: Upgrade, tunnels: WebSocketServer): Promise<void> {
  const forwarding = await forwardTarget(options, upgrade);
  const stream = createWebSocketStream(await openWebSocket(tunnels, upgrade));
  stream.on('error', () => stream.destroy());
  await forwardOverSpdy(stream, Buffer.alloc(0), forwarding);
}

async function serveForward(options: Upgrades, upgrade: Upgrade, sockets: WebSocketServer | undefined): Promise<void> {
  const { request, socket, head, target } = upgrade;
  const ports = sockets === undefined ? [] : channelPorts(target.query);
  const forwarding = await forwardTarget(options, upgrade);
  if (sockets !== undefined) {
    forwardOverChannels(await openWebSocket(sockets, upgrade), ports, forwarding);
    return;
  }
  negotiateProtocol(request, [PORT_FORWARD_PROTOCOL]);
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: ${PORT_FORWARD_PROTOCOL}\r\n\r\n`,
  );
  await forwardOverSpdy(socket, head, forwarding);
}

/** The maximum number of forwarded ports of a connection. Each has two channels, and the number of a channel is one byte. */
const MAX_PORTS = 127;

function channelPorts(query: URLSearchParams): number[] {
  const texts = query.getAll('port').flatMap((text) => text.split(','));
  if (texts.length === 0) throw newBadRequest('query parameter "port" is required');
  if (texts.length > MAX_PORTS) throw newBadRequest(`more than ${MAX_PORTS} ports are not forwarded at a time`);
  return texts.map((text) => {
    const port = Number(text);
    if (!Number.isInteger(port) || port < 1 || port > 65_535)
      throw newBadRequest(`invalid port ${quoteText(text)}: it must be between 1 and 65535`);
    return port;
  });
}

const STATUS_TEXTS: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'Not Found',
  405: 'Method Not Allowed',
  429: 'Too Many Requests',
  500: 'Internal Server Error',
};

/** Returns the header that Go's `http.Error` adds. Its errors, unlike those of the kubelet's routes, end with a line end. */
export function sniffingHeader(body: string): Readonly<Record<string, string>> {
  return body.endsWith('\n') ? { 'X-Content-Type-Options': 'nosniff' } : {};
}

/** Answers a failure before the upgrade in plain HTTP. Does nothing if the socket is closed or no longer writable. */
export function refuseUpgrade(socket: Duplex, error: unknown): void {
  if (socket.destroyed || !socket.writable) return;
  const code = error instanceof StatusError ? error.code : 500;
  const body = errorMessage(error);
  const headers = {
    'Content-Type': TEXT_TYPE,
    ...sniffingHeader(body),
    Connection: 'close',
    'Content-Length': Buffer.byteLength(body),
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.end(`HTTP/1.1 ${code} ${STATUS_TEXTS[code] ?? 'Error'}\r\n${lines.join('')}\r\n${body}`);
}
