/**
 * Breaks off streams of HTTP/2 whose response is complete and is not taken by the client, however short it is. A stream costs
 * kilobytes, and a client without credentials can have thousands of them over each of its connections. Responses that are not
 * complete have limits of their own.
 */
import { constants, type ServerHttp2Stream } from 'node:http2';
import type { Clock, Timer } from '../../api/machinery/clock.ts';

interface UntakenResponsesOptions {
  readonly clock: Clock;
  /** A client has this time at least, and twice as long at most. */
  readonly timeoutMs: number;
  /** While more streams than this have untaken responses, the time is `HURRIED_MS`. */
  readonly many?: number | undefined;
}

/** They take about a hundred megabytes. */
const MANY_STREAMS = 20_000;
const HURRIED_MS = 1_000;

/** The streams of a listener. Adding and removing one costs no more than a place in a set, because every request pays. */
export class UntakenResponses {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #many: number;
  readonly #streams = new Set<ServerHttp2Stream>();
  /** When a check first found the response of a stream untaken, in monotonic milliseconds. */
  #untaken = new Map<ServerHttp2Stream, number>();
  #timer: Timer | undefined;
  #isHurried = false;

  constructor({ clock, timeoutMs, many = MANY_STREAMS }: UntakenResponsesOptions) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
    this.#many = many;
  }

  add(stream: ServerHttp2Stream): void {
    this.#streams.add(stream);
    if (this.#timer === undefined || (!this.#isHurried && this.#streams.size > this.#many)) this.#arm();
  }

  delete(stream: ServerHttp2Stream): void {
    this.#streams.delete(stream);
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #arm(): void {
    this.#timer?.cancel();
    this.#isHurried = this.#streams.size > this.#many;
    this.#timer = this.#clock.after(this.#isHurried ? HURRIED_MS : this.#timeoutMs, () => this.#check());
  }

  #check(): void {
    this.#timer = undefined;
    const nowMs = this.#clock.monotonic();
    const untaken = new Map<ServerHttp2Stream, number>();
    for (const stream of this.#streams) {
      if (stream.writableEnded && !stream.writableFinished) untaken.set(stream, this.#untaken.get(stream) ?? nowMs);
    }
    // Watches are streams as well, so that many streams alone are no reason to hurry.
    const timeMs = untaken.size > this.#many ? HURRIED_MS : this.#timeoutMs;
    for (const [stream, sinceMs] of untaken) if (nowMs - sinceMs >= timeMs) stream.close(constants.NGHTTP2_CANCEL);
    this.#untaken = untaken;
    if (this.#streams.size > 0) this.#arm();
  }
}
