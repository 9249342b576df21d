/**
 * Sends the events of a watch as the body of a response, in pieces that are given to the connection only while it takes more.
 * The layers below copy what they get, but here a large object waits as a reference to the bytes that the cache has.
 */
import type { Exchange } from '../exchange.ts';
import type { WatchEncoder } from '../watch-encoding.ts';
import type { WatchCarrier } from './watch-carrier.ts';

const PIECE_BYTES = 64 * 1024;

/** Sends the events of a watch in the body of the response. `begin` sends the headers. */
export function overBody(
  exchange: Exchange,
  encoder: WatchEncoder,
  begin: (contentType: string) => void,
): WatchCarrier {
  const waiting: Buffer[] = [];
  let waitingBytes = 0;
  /** The size of the piece that was given to the connection and waits there. */
  let sendingBytes = 0;
  let ending = false;
  let drained: () => void = () => undefined;

  /** Returns whether the connection takes more. */
  const send = (): boolean => {
    for (let piece = waiting.shift(); piece !== undefined; piece = waiting.shift()) {
      waitingBytes -= piece.length;
      if (exchange.write(piece)) continue;
      sendingBytes = piece.length;
      return false;
    }
    if (ending) exchange.end();
    return true;
  };
  exchange.onDrain(() => {
    sendingBytes = 0;
    if (send() && !ending) drained();
  });
  return {
    start: begin,
    write(events) {
      if (exchange.closed || ending) return true;
      const isSending = sendingBytes > 0;
      for (const chunk of encoder.encode(events)) {
        waitingBytes += chunk.length;
        for (let from = 0; from < chunk.length; from += PIECE_BYTES)
          waiting.push(chunk.length <= PIECE_BYTES ? chunk : chunk.subarray(from, from + PIECE_BYTES));
      }
      return isSending ? false : send();
    },
    end() {
      if (ending) return;
      ending = true;
      if (waiting.length === 0) exchange.end();
    },
    abort: () => exchange.abort(),
    get isTaken() {
      return exchange.isTaken;
    },
    get waitingBytes() {
      return waitingBytes + sendingBytes;
    },
    onDrain(listener) {
      drained = listener;
    },
    onClose: (listener) => exchange.onClose(listener),
  };
}
