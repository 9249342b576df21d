/** Sends the events of a watch as WebSocket messages: JSON as text, and protobuf as binary. */
import { WebSocketServer, type WebSocket } from 'ws';
import { answerPings, SENDS_ONLY } from '../../../api/http/websocket.ts';
import type { WatchEvent } from '../../model/rest.ts';
import type { Upgrade } from '../exchange.ts';
import type { WatchEncoder } from '../watch-encoding.ts';
import type { WatchCarrier } from './watch-carrier.ts';

/** The number of bytes that may wait for a slow client before the watch pauses. */
const HIGH_WATER_BYTES = 64 * 1024;

const server = new WebSocketServer(SENDS_ONLY);

interface WebSocketOptions {
  readonly encoder: WatchEncoder;
  readonly binary: boolean;
  readonly begin: () => void;
}

/** Sends the events of a watch over a WebSocket. The client's messages are ignored; closing the socket ends the watch. */
export function openWebSocket(upgrade: Upgrade, { encoder, binary, begin }: WebSocketOptions): WatchCarrier {
  let drained: () => void = () => undefined;
  let closedListener: () => void = () => undefined;
  let socket: WebSocket | undefined;
  let closed = false;
  const close = (): void => {
    if (closed) return;
    closed = true;
    closedListener();
  };
  return {
    start() {
      begin();
      if (upgrade.socket.destroyed) {
        close();
        return;
      }
      upgrade.socket.once('close', close);
      server.handleUpgrade(upgrade.message, upgrade.socket, upgrade.head, (opened) => {
        socket = opened;
        answerPings(opened);
        opened.on('error', close);
        opened.on('close', close);
      });
    },
    write(events: readonly WatchEvent[]) {
      if (socket === undefined || closed) return true;
      for (const frame of encoder.frames(events)) {
        socket.send(frame, { binary }, () => {
          if (socket?.bufferedAmount === 0) drained();
        });
      }
      return socket.bufferedAmount < HIGH_WATER_BYTES;
    },
    end() {
      if (socket === undefined) upgrade.socket.destroy();
      else socket.close(1000);
    },
    abort: () => void upgrade.socket.destroy(),
    get isTaken() {
      return closed;
    },
    get waitingBytes() {
      return socket?.bufferedAmount ?? 0;
    },
    onDrain(listener) {
      drained = listener;
    },
    onClose(listener) {
      closedListener = listener;
    },
  };
}
