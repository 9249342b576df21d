/** The rules of WebSocket servers for what clients may send. The servers of agents and control planes follow them. */
import type { ServerOptions, WebSocket } from 'ws';

/**
 * The options of a server that only sends, such as that of a watch. Messages of clients are ignored, and the library holds each
 * one until it is complete, up to 100 MiB by default. The caller calls `answerPings` for each connection.
 */
export const SENDS_ONLY = {
  noServer: true,
  perMessageDeflate: false,
  autoPong: false,
  maxPayload: 64 * 1024,
} as const satisfies ServerOptions;

/** The maximum number of pongs that wait for a client that does not read, with up to 125 bytes each. */
const MAX_WAITING_PONGS = 64;

/**
 * Limits the pongs for one client. RFC 6455 allows a server to respond to the latest ping only, so a client that pings without
 * end and does not read gets no more pongs. Pending output does not count, because slow clients take a pong as the sign that
 * the connection is alive.
 */
export function answerPings(socket: WebSocket): void {
  let waiting = 0;
  socket.on('ping', (data: Buffer) => {
    if (waiting >= MAX_WAITING_PONGS) return;
    waiting += 1;
    socket.pong(data, false, () => {
      waiting -= 1;
    });
  });
}
