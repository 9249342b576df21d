/**
 * Tunnels an upgrade (SPDY/3.1 or WebSocket) to a target. The tunnel opens only after the target has responded with 101. Then
 * the bytes of both sides pass unchanged. Any other response goes to the client and ends the connection, so that later data of
 * the client never reaches the target.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Socket } from 'node:net';
import type { Clock } from '../../../api/machinery/clock.ts';
import { DialRefusedError } from '../../../api/http/dialer.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { newBadRequest, newInternalError } from '../../../api/meta/status-error.ts';
import type { Origin } from '../../model/rest.ts';
import type { ApiRequest } from '../request.ts';
import { answerHeaders } from './forwarded-headers.ts';
import { addressOf, dialedTls, passBody, type TargetDialing, type TargetTls } from './passed-response.ts';

/** The time limit from dialing to the head of the response. */
const ANSWER_TIMEOUT_MS = 30_000;

/** How long one side may take to end after the other has closed. */
const LINGER_MS = 5_000;

/** Where the tunnel leads, and the headers that the target receives. */
interface TunnelTarget extends TargetDialing {
  readonly origin: Origin;
  /** The percent-encoded path and query, which are sent unchanged. */
  readonly target: string;
  readonly tls: TargetTls;
  /** The headers, `host` among them. */
  readonly headers: readonly (readonly [string, string])[];
  readonly clock: Clock;
}

/**
 * Connects the client with the target by an upgraded connection. Throws a 500 if the target is unreachable or does not respond,
 * and a 400 if its address is refused.
 */
export async function tunnel(request: ApiRequest, target: TunnelTarget): Promise<void> {
  let answer: Answer;
  try {
    answer = await requestUpgrade(request, target);
  } catch (error) {
    if (error instanceof DialRefusedError) throw newBadRequest(error.message);
    const why = errorMessage(error);
    throw newInternalError(`error dialing backend: ${why}`, error);
  }
  if (answer.socket === undefined) return await passRefusal(request, answer.message);
  const upgrade = request.exchange.takeUpgrade();
  if (upgrade === undefined) {
    answer.socket.destroy();
    return;
  }
  const client = upgrade.socket;
  request.status = 101;
  upgrade.response.detachSocket(client as Socket);
  client.write(switchingHead(answer.message));
  if (answer.head.length > 0) client.write(answer.head);
  if (upgrade.head.length > 0) answer.socket.write(upgrade.head);
  await join(client, answer.socket, target.clock);
}

type Answer =
  | { readonly message: IncomingMessage; readonly socket: Duplex; readonly head: Buffer }
  | { readonly message: IncomingMessage; readonly socket: undefined };

/** Resolves to the target's response, with the socket if the code is 101. */
function requestUpgrade(request: ApiRequest, options: TunnelTarget): Promise<Answer> {
  const { dialer, purpose, name, origin, target, tls, headers, clock } = options;
  return new Promise((resolve, reject) => {
    const outgoing = dialer.request({
      ...addressOf(origin),
      ...dialedTls(tls),
      purpose,
      ...(name === undefined ? {} : { name }),
      path: target,
      method: request.exchange.method,
      headers: [...headers, ['Connection', 'Upgrade'], ['Upgrade', request.header('upgrade') ?? '']].flat(),
      agent: false as const,
      setHost: false,
      signal: request.signal,
    });
    const timeoutMessage = `${origin.host}:${origin.port} did not respond within ${ANSWER_TIMEOUT_MS / 1000} s`;
    const timer = clock.after(ANSWER_TIMEOUT_MS, () => outgoing.destroy(new Error(timeoutMessage)));
    outgoing.once('upgrade', (message, socket, head) => {
      timer.cancel();
      resolve({ message, socket, head });
    });
    outgoing.once('response', (message) => {
      timer.cancel();
      resolve({ message, socket: undefined });
    });
    outgoing.once('error', (error) => {
      timer.cancel();
      reject(error);
    });
    outgoing.end();
  });
}

/** Passes the response of a refused upgrade to the client, and closes the client's connection after it. */
async function passRefusal(request: ApiRequest, message: IncomingMessage): Promise<void> {
  request.status = message.statusCode ?? 502;
  request.exchange.start(request.status, { ...answerHeaders(request, message), connection: 'close' });
  await passBody(message, request.exchange);
}

/** Returns the head of the switching response, with all headers of the target's response. */
function switchingHead({ rawHeaders }: IncomingMessage): string {
  const lines = ['HTTP/1.1 101 Switching Protocols'];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2)
    lines.push(`${rawHeaders[at] ?? ''}: ${rawHeaders[at + 1] ?? ''}`);
  return `${lines.join('\r\n')}\r\n\r\n`;
}

/**
 * Joins two connections. Resolves when both have closed. Data of a client whose target has closed is read and dropped, because
 * a client that is blocked in a write would not notice the end, and its connection would stay open.
 */
function join(client: Duplex, backend: Duplex, clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    let open = 2;
    const closed = (): void => {
      open -= 1;
      if (open === 0) resolve();
    };
    const destroyLater = (side: Duplex): void => {
      const timer = clock.after(LINGER_MS, () => side.destroy());
      side.once('close', () => timer.cancel());
    };
    client.once('close', () => {
      if (!backend.destroyed) {
        backend.end(() => backend.destroy());
        destroyLater(backend);
      }
      closed();
    });
    backend.once('close', () => {
      if (!client.destroyed) {
        client.unpipe(backend);
        client.resume();
        client.end(() => destroyLater(client));
      }
      closed();
    });
    client.on('error', () => backend.destroy());
    backend.on('error', () => client.destroy());
    client.pipe(backend);
    backend.pipe(client);
    if (client.destroyed) {
      backend.destroy();
      closed();
    }
  });
}
