/** Serves `log`: passes the agent's response on as text or as WebSocket messages. An error of the agent becomes a Status. */
import type { IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { type WebSocket, WebSocketServer } from 'ws';
import { newInternalError, newStatusError } from '../../../api/meta/status-error.ts';
import type { Rest } from '../../model/rest.ts';
import type { Upgrade } from '../exchange.ts';
import type { ApiRequest } from '../request.ts';
import { type OpenTarget, passBody, requestTarget } from './passed-response.ts';

const MAX_REASON_CHARS = 2048;
/** The number of bytes that may wait for a slow client before reading the log pauses. */
const HIGH_WATER_BYTES = 1 << 20;
const BASE64_PROTOCOL = 'base64.binary.k8s.io';
const PROTOCOLS: ReadonlySet<string> = new Set(['binary.k8s.io', BASE64_PROTOCOL]);

const webSockets = new WebSocketServer({
  noServer: true,
  perMessageDeflate: false,
  handleProtocols: (offered) => [...offered].find((protocol) => PROTOCOLS.has(protocol)) ?? false,
});

export async function streamLog(request: ApiRequest, rest: Rest, target: OpenTarget): Promise<void> {
  const message = await requestTarget({
    ...target,
    method: 'GET',
    headers: [['accept', '*/*']],
    body: undefined,
    signal: request.signal,
  });
  const status = message.statusCode ?? 500;
  if (status < 200 || status > 206) {
    const reason = (await text(message)).slice(0, MAX_REASON_CHARS).trim();
    throw refusal(status, reason, rest, request.info.parts[1] ?? '');
  }
  const isWebSocket = (request.header('upgrade') ?? '').toLowerCase() === 'websocket';
  const upgrade = isWebSocket ? request.exchange.takeUpgrade() : undefined;
  if (upgrade !== undefined) {
    request.status = 101;
    await passMessages(message, upgrade);
    return;
  }
  request.status = 200;
  request.exchange.start(200, request.responseHeaders('text/plain'));
  await passBody(message, request.exchange);
}

/** Each piece becomes a message: binary, or base64 text for browsers. Resolves when either side has closed. */
function passMessages(message: IncomingMessage, upgrade: Upgrade): Promise<void> {
  return new Promise((resolve) => {
    const gone = (): void => {
      message.destroy();
      resolve();
    };
    upgrade.socket.once('close', gone);
    webSockets.handleUpgrade(upgrade.message, upgrade.socket, upgrade.head, (socket: WebSocket) => {
      const isBase64 = socket.protocol === BASE64_PROTOCOL;
      socket.on('error', () => socket.terminate());
      message.on('data', (chunk: Buffer) => {
        socket.send(isBase64 ? chunk.toString('base64') : chunk, () => {
          if (socket.bufferedAmount < HIGH_WATER_BYTES / 2) message.resume();
        });
        if (socket.bufferedAmount > HIGH_WATER_BYTES) message.pause();
      });
      message.once('end', () => socket.close(1000));
      message.once('error', () => socket.terminate());
    });
  });
}

const REASONS: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
};

function refusal(status: number, reason: string, rest: Rest, name: string): Error {
  if (status === 500) return newInternalError(reason);
  const { group, resource } = rest.info;
  return newStatusError(status, REASONS[status] ?? 'Unknown', reason, {
    details: { name, ...(group === '' ? {} : { group }), kind: resource },
  });
}
