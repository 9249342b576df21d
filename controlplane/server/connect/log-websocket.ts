/** Passes a log on as messages of a WebSocket. */
import type { IncomingMessage } from 'node:http';
import { type WebSocket, WebSocketServer } from 'ws';
import { answerPings, SENDS_ONLY } from '../../../api/http/websocket.ts';
import type { Upgrade } from '../exchange.ts';

/** The number of bytes that may wait for a slow client before reading the log pauses. */
const HIGH_WATER_BYTES = 1 << 20;
const BASE64_PROTOCOL = 'base64.binary.k8s.io';
const PROTOCOLS: ReadonlySet<string> = new Set(['binary.k8s.io', BASE64_PROTOCOL]);

const webSockets = new WebSocketServer({
  ...SENDS_ONLY,
  handleProtocols: (offered) => [...offered].find((protocol) => PROTOCOLS.has(protocol)) ?? false,
});

/**
 * Accepts the WebSocket of a client and sends it a log. Each piece becomes a message: binary, or base64 text for browsers.
 * Resolves when the WebSocket is closed.
 */
export function passMessages(message: IncomingMessage, upgrade: Upgrade): Promise<void> {
  return new Promise((resolve) => {
    const gone = (): void => {
      message.destroy();
      resolve();
    };
    upgrade.socket.once('close', gone);
    webSockets.handleUpgrade(upgrade.message, upgrade.socket, upgrade.head, (socket: WebSocket) => {
      answerPings(socket);
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
