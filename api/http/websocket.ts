/** The rules of WebSocket servers for what clients may send. */
import type { ServerOptions, WebSocket } from 'ws';

/** What the library holds of a message whose end has not come: bytes, fragments, and received chunks of one frame. */
interface MessageBounds {
  readonly maxPayload: number;
  readonly maxFragments: number;
  readonly maxBufferedChunks: number;
}

/** Returns the options of a server that bound what clients send. The caller calls `answerPings` for each connection. */
export const boundedServer = (bounds: MessageBounds) =>
  ({ noServer: true, perMessageDeflate: false, autoPong: false, ...bounds }) as const satisfies ServerOptions;

/** The options of a server that only sends, such as that of a watch. */
export const SENDS_ONLY = boundedServer({ maxPayload: 64 * 1024, maxFragments: 16, maxBufferedChunks: 128 });

/** The maximum number of pongs that wait for a client that does not read, with up to 125 bytes each. */
const MAX_WAITING_PONGS = 64;

/**
 * Limits the pongs for one client. RFC 6455 allows a server to respond to the latest ping only, so a client that pings without
 * end and does not read gets no more pongs.
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
