/**
 * Divides computations into cooperative slices. All computations of the process take turns, so many of them together do not
 * hold the event loop for longer than one. Values that a computation read before a pause may have changed.
 */
import type { Clock } from './clock.ts';

const SLICE_MS = 10;

/** The computations that wait for their next slice. One of them continues in each turn of the event loop. */
const waiting: (() => void)[] = [];

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve);
    if (waiting.length === 1) setImmediate(continueFirst);
  });
}

function continueFirst(): void {
  waiting.shift()?.();
  if (waiting.length > 0) setImmediate(continueFirst);
}

/** What work checks after each unit to know whether to yield. */
export type Slice = Pick<TimeSlice, 'isSpent'>;

/** Measures the time since the last pause. */
export class TimeSlice {
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #lengthMs: number;
  #endsAtMs: number;

  constructor(clock: Pick<Clock, 'monotonic'>, lengthMs = SLICE_MS) {
    this.#clock = clock;
    this.#lengthMs = lengthMs;
    this.#endsAtMs = clock.monotonic() + lengthMs;
  }

  /** Whether the slice has ended, so that the caller must pause. */
  get isSpent(): boolean {
    return this.#clock.monotonic() >= this.#endsAtMs;
  }

  /** Resolves at the beginning of the next slice. */
  async pause(): Promise<void> {
    await nextTurn();
    this.begin();
  }

  /** Begins a slice now, because the computation has waited for something else. */
  begin(): void {
    this.#endsAtMs = this.#clock.monotonic() + this.#lengthMs;
  }
}

/**
 * Runs work that yields when its slice is spent. Returns the result without a promise if the work ends within its first slice.
 * If the signal aborts, the promise rejects with its reason at the next pause of the work.
 */
export function inSlices<Result>(
  work: Generator<void, Result, undefined>,
  slice: TimeSlice,
  signal?: AbortSignal,
): Result | Promise<Result> {
  const { done, value } = work.next();
  return done === true ? value : furtherSlices(work, slice, signal);
}

async function furtherSlices<Result>(
  work: Generator<void, Result, undefined>,
  slice: TimeSlice,
  signal: AbortSignal | undefined,
): Promise<Result> {
  for (;;) {
    await slice.pause();
    signal?.throwIfAborted();
    const { done, value } = work.next();
    if (done === true) return value;
  }
}

/** Runs work for `inSlices` to its end without pauses, and returns its result. */
export function inOneSlice<Result>(work: Generator<void, Result, undefined>): Result {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}
