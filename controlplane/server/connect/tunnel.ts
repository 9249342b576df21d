/**
 * An upgrade (SPDY/3.1 or WebSocket alike) as a raw tunnel: the request goes on as it came but for credentials, and from
 * then on both sides' bytes pass untouched, the target's answer included.
 */
import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Clock } from '../../../api/machinery/clock.ts';
import { newInternalError } from '../../../api/meta/status-error.ts';
import type { Upgrade } from '../exchange.ts';
import type { ApiRequest } from '../request.ts';
import type { TargetTls } from './connector.ts';

const DIAL_TIMEOUT_MS = 30_000;

/** Agents and pods are known by their address, not by their name. */
const ANY_NAME = { checkServerIdentity: () => undefined };

export interface TunnelTarget {
  readonly url: URL;
  readonly tls: TargetTls;
  /** `host` is among them. */
  readonly headers: readonly (readonly [string, string])[];
  readonly clock: Clock;
}

export async function tunnel(request: ApiRequest, upgrade: Upgrade, target: TunnelTarget): Promise<void> {
  const client = upgrade.socket;
  let backend: Socket;
  try {
    backend = await dial(target);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    const { status } = newInternalError(`error dialing backend: ${why}`, error);
    const body = `${JSON.stringify(status)}\n`;
    client.end(
      `HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
    return;
  }
  request.status = 101;
  upgrade.response.detachSocket(client as Socket);
  backend.write(requestHead(request, target));
  if (upgrade.head.length > 0) backend.write(upgrade.head);
  await join(client, backend);
}

function dial({ url, tls, clock }: TunnelTarget): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const secure = url.protocol === 'https:';
    const port = url.port === '' ? (secure ? 443 : 80) : Number(url.port);
    const socket = secure
      ? connectTls({
          host,
          port,
          ...tls,
          ALPNProtocols: ['http/1.1'],
          ...(tls.servername === undefined ? ANY_NAME : {}),
        })
      : connectTcp({ host, port });
    const timer = clock.after(DIAL_TIMEOUT_MS, () => socket.destroy(new Error('dial timed out')));
    socket.once(secure ? 'secureConnect' : 'connect', () => {
      timer.cancel();
      socket.removeListener('error', reject);
      socket.setNoDelay(true);
      resolve(socket);
    });
    socket.once('error', (error) => {
      timer.cancel();
      reject(error);
    });
  });
}

function requestHead(request: ApiRequest, { url, headers }: TunnelTarget): string {
  const lines = [`${request.exchange.method} ${url.pathname}${url.search} HTTP/1.1`];
  for (const [name, value] of headers) lines.push(`${name}: ${value}`);
  lines.push('Connection: Upgrade', `Upgrade: ${request.header('upgrade') ?? ''}`);
  return `${lines.join('\r\n')}\r\n\r\n`;
}

/** Ends when either side has ended and what it had sent is through. */
function join(client: Upgrade['socket'], backend: Socket): Promise<void> {
  return new Promise((resolve) => {
    let open = 2;
    const closed = (): void => {
      open -= 1;
      if (open === 0) resolve();
    };
    client.once('close', () => {
      backend.destroySoon();
      closed();
    });
    backend.once('close', () => {
      client.end();
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
