/**
 * Measures the seats that a priority level requested over time: average, standard deviation and maximum between two resets,
 * weighted by the duration of each value.
 */

/** The statistics of one period, in seats. */
export interface DemandStatistics {
  readonly average: number;
  readonly deviation: number;
  readonly highWatermark: number;
}

/** Measures a number of seats over time. Times are those of the monotonic clock, in milliseconds. */
export class SeatDemand {
  #lastMs: number;
  #value = 0;
  #elapsedMs = 0;
  #sum = 0;
  #squares = 0;
  #highest = 0;

  constructor(nowMs: number) {
    this.#lastMs = nowMs;
  }

  /** The current demand, in seats. */
  get value(): number {
    return this.#value;
  }

  /** Sets the demand from this time on. */
  set(nowMs: number, value: number): void {
    this.#integrate(nowMs);
    this.#value = value;
    if (value > this.#highest) this.#highest = value;
  }

  /** Returns the statistics since the last reset. The current value is the first of the next period. */
  reset(nowMs: number): DemandStatistics {
    this.#integrate(nowMs);
    const highWatermark = this.#highest;
    const average = this.#elapsedMs > 0 ? this.#sum / this.#elapsedMs : this.#value;
    const variance = this.#elapsedMs > 0 ? this.#squares / this.#elapsedMs - average * average : 0;
    this.#elapsedMs = 0;
    this.#sum = 0;
    this.#squares = 0;
    this.#highest = this.#value;
    return { average, deviation: Math.sqrt(Math.max(0, variance)), highWatermark };
  }

  #integrate(nowMs: number): void {
    const elapsedMs = nowMs - this.#lastMs;
    if (elapsedMs <= 0) return;
    this.#lastMs = nowMs;
    this.#elapsedMs += elapsedMs;
    this.#sum += elapsedMs * this.#value;
    this.#squares += elapsedMs * this.#value * this.#value;
  }
}
