/**
 * Breaks off responses that are complete and that the client does not take, however short they are. A stream of HTTP/2 costs
 * kilobytes, and a client without credentials can have thousands of them over each of its connections; a connection of HTTP/1.1
 * holds the whole response.
 */
import type { Clock, Timer } from '../machinery/clock.ts';

/** The response of HTTP/1.1, or the stream of HTTP/2. */
interface Untaken {
  /** Whether the response is complete, and whether the system has taken all of it. */
  readonly writableEnded: boolean;
  readonly writableFinished: boolean;
}

interface UntakenResponsesOptions<R> {
  readonly clock: Clock;
  /** Called for a response that was not taken in time. */
  readonly breakOff: (response: R) => void;
  /** A client has this time at least, and twice as long at most. */
  readonly timeoutMs: number;
  /** The number of untaken responses above which a client has only `HURRIED_MS`. */
  readonly many?: number | undefined;
}

/** The default of `many`. */
const MANY = 20_000;
const HURRIED_MS = 1_000;

/** The responses of a listener. */
export class UntakenResponses<R extends Untaken> {
  readonly #clock: Clock;
  readonly #breakOff: (response: R) => void;
  readonly #timeoutMs: number;
  readonly #many: number;
  readonly #responses = new Set<R>();
  /** The times at which a check first found a response untaken, in monotonic milliseconds. */
  #untaken = new Map<R, number>();
  #timer: Timer | undefined;
  #isHurried = false;

  constructor({ clock, breakOff, timeoutMs, many = MANY }: UntakenResponsesOptions<R>) {
    this.#clock = clock;
    this.#breakOff = breakOff;
    this.#timeoutMs = timeoutMs;
    this.#many = many;
  }

  add(response: R): void {
    this.#responses.add(response);
    if (this.#timer === undefined || (!this.#isHurried && this.#responses.size > this.#many)) this.#arm();
  }

  delete(response: R): void {
    this.#responses.delete(response);
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #arm(): void {
    this.#timer?.cancel();
    this.#isHurried = this.#responses.size > this.#many;
    this.#timer = this.#clock.after(this.#isHurried ? HURRIED_MS : this.#timeoutMs, () => this.#check());
  }

  #check(): void {
    this.#timer = undefined;
    const nowMs = this.#clock.monotonic();
    const untaken = new Map<R, number>();
    for (const response of this.#responses) {
      if (response.writableEnded && !response.writableFinished)
        untaken.set(response, this.#untaken.get(response) ?? nowMs);
    }
    // Watches are responses as well, so that many responses alone are no reason to hurry.
    const timeMs = untaken.size > this.#many ? HURRIED_MS : this.#timeoutMs;
    for (const [response, sinceMs] of untaken) if (nowMs - sinceMs >= timeMs) this.#breakOff(response);
    this.#untaken = untaken;
    if (this.#responses.size > 0) this.#arm();
  }
}
