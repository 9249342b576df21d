/**
 * Limits the memory of one watch. The watch and the events that wait for its client count against the memory for the watches
 * of its priority level. A client that does not take the events within the request timeout loses the watch, and can continue
 * with another one.
 */
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import { TooManyRequests } from '../flowcontrol/too-many-requests.ts';
import type { Share } from '../shares.ts';
import type { ApiRequest } from '../request.ts';
import type { WatchMemory } from '../watch-memory.ts';
import type { WatchCarrier } from './watch-carrier.ts';

const RETRY_AFTER_S = 30;

interface WatchLimitsOptions {
  readonly clock: Clock;
  readonly watchMemory: WatchMemory;
  readonly requestTimeoutMs: number;
}

/** The limits of one watch, which are created when it begins and released at its end. */
export class WatchLimits {
  readonly #options: WatchLimitsOptions;
  readonly #share: Share;
  #carrier: WatchCarrier | undefined;
  #mustYield = false;
  #waitingBytes = 0;
  #timer: Timer | undefined;

  /** Counts the watch. Throws `TooManyRequests` if the memory is used up and the watches of this user hold most of it. */
  constructor(request: ApiRequest, options: WatchLimitsOptions) {
    this.#options = options;
    this.#share = options.watchMemory.open(request, () => {
      this.#mustYield = true;
      this.#carrier?.abort();
    });
    if (!this.#mustYield) return;
    this.#share.close();
    throw new TooManyRequests(RETRY_AFTER_S);
  }

  /** Sets the response or WebSocket that carries the events. Aborts it at once if the watch has had to yield already. */
  carry(carrier: WatchCarrier): void {
    this.#carrier = carrier;
    if (this.#mustYield) carrier.abort();
  }

  /** Called while something waits for the client. */
  waiting(): void {
    this.#timer ??= this.#options.clock.after(this.#options.requestTimeoutMs, () => this.#carrier?.abort());
    this.#count(this.#carrier?.waitingBytes ?? 0);
  }

  /** Called when the client has received everything. */
  taken(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#count(0);
  }

  /** Ends the limits: stops the timer, and returns the memory of the watch. */
  release(): void {
    this.taken();
    this.#share.close();
  }

  #count(bytes: number): void {
    const more = bytes - this.#waitingBytes;
    this.#waitingBytes = bytes;
    this.#share.add(more);
  }
}
