/** Writes the frames of a stream as the response to a request, no faster than the client reads them. */
import type { Clock } from '../../api/machinery/clock.ts';
import type { Exchange } from '../server/exchange.ts';
import { encodeFrame, type Frame } from './frames.ts';

/** A client that reads nothing for this long is given up. */
const STALLED_MS = 60_000;

/** Writes one frame at a time: the caller waits for `write` before the next one. It takes the exchange's `onDrain`. */
export class FrameWriter {
  readonly #exchange: Exchange;
  readonly #clock: Clock;
  #resume: () => void = () => undefined;

  constructor(exchange: Exchange, clock: Clock) {
    this.#exchange = exchange;
    this.#clock = clock;
    exchange.onDrain(() => this.#resume());
    exchange.onClose(() => this.#resume());
  }

  /**
   * Resolves when the client takes more, or is gone after the last part. Throws if the client is gone before a part, or has
   * read nothing for 60 seconds.
   */
  async write(frame: Frame): Promise<void> {
    for (const part of encodeFrame(frame)) {
      if (this.#exchange.closed) throw new Error('the standby has closed the stream');
      const drained = Promise.withResolvers<void>();
      this.#resume = drained.resolve;
      if (this.#exchange.write(part)) continue;
      const timer = this.#clock.after(STALLED_MS, () => {
        drained.reject(new Error(`the standby has read nothing for ${STALLED_MS / 1000} s`));
      });
      try {
        await drained.promise;
      } finally {
        timer.cancel();
      }
    }
  }
}
