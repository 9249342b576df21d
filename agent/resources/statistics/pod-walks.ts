/**
 * Measures pods one after the other, and waits for each for a limited time: a pod may have millions of files, or a volume
 * whose server does not answer. Its measurement then continues beside those of other pods, and is not started again before
 * it has ended.
 */
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { DiskUsage, GrowingUsage } from './disk-usage.ts';

interface PodWalksOptions<T> {
  readonly clock: Clock;
  /** Measures a pod. Adds to `soFar` what is found meanwhile. */
  readonly measure: (pod: Pod, soFar: GrowingUsage) => Promise<T>;
  readonly onError: (pod: Pod, error: unknown) => void;
}

/** The disk usage of a pod, as far as it is known. */
interface Measured<T> {
  /** The last complete measurement; `undefined` before the first one. */
  readonly whole: T | undefined;
  /** What the running measurement has found so far; `undefined` if none is running. */
  readonly soFar: DiskUsage | undefined;
}

interface Walk<T> {
  startedMs: number;
  /** How long the last complete measurement took. */
  tookMs: number;
  running: Promise<void> | undefined;
  soFar: GrowingUsage;
  whole: T | undefined;
}

/** How long to wait for one pod. */
const POD_WAIT_MS = 5_000;
/** How long to wait for all pods. */
const TOTAL_WAIT_MS = 20_000;
/**
 * A walk over many files keeps the agent busy. The next measurement of a pod therefore starts, counted from the start of the
 * last one, after 30 times the duration of the last one or a minute, whichever is less, but not before 3 times the duration.
 */
const MIN_DURATIONS = 3;
const DURATIONS = 30;
const MINUTE_MS = 60_000;

/** Owns the measurements of the pods of this node. Callers share those that run. */
export class PodWalks<T> {
  readonly #options: PodWalksOptions<T>;
  readonly #walks = new Map<string, Walk<T>>();

  constructor(options: PodWalksOptions<T>) {
    this.#options = options;
  }

  /**
   * Measures the pods whose measurement is older than `maxAgeMs`, if they are due again. Resolves when all of them have been
   * measured or the time to wait is over, to what is known of each pod. A pod whose first measurement has not begun is absent.
   */
  async measured(pods: readonly Pod[], maxAgeMs: number): Promise<ReadonlyMap<string, Measured<T>>> {
    const { clock } = this.#options;
    const present = new Set(pods.map(({ metadata }) => metadata.uid));
    for (const uid of this.#walks.keys()) if (!present.has(uid)) this.#walks.delete(uid);
    const untilMs = clock.monotonic() + TOTAL_WAIT_MS;
    for (const pod of pods) {
      if (clock.monotonic() >= untilMs) break;
      const walk = this.#walkOf(pod, maxAgeMs);
      if (walk.running === undefined) continue;
      await settledWithin(clock, walk.running, walk.startedMs + POD_WAIT_MS - clock.monotonic());
    }
    const found = [...this.#walks].filter(([uid]) => present.has(uid));
    return new Map(
      found.map(([uid, { whole, running, soFar }]) => [
        uid,
        { whole, soFar: running === undefined ? undefined : { ...soFar } },
      ]),
    );
  }

  /** Returns the walk of the pod, and starts it if it is not running and is due. */
  #walkOf(pod: Pod, maxAgeMs: number): Walk<T> {
    const { clock, measure, onError } = this.#options;
    const { uid } = pod.metadata;
    const nowMs = clock.monotonic();
    const existing = this.#walks.get(uid);
    if (existing !== undefined) {
      const dueMs =
        existing.startedMs +
        Math.max(maxAgeMs, MIN_DURATIONS * existing.tookMs, Math.min(DURATIONS * existing.tookMs, MINUTE_MS));
      if (existing.running !== undefined || nowMs <= dueMs) return existing;
    }
    const walk: Walk<T> = existing ?? {
      startedMs: 0,
      tookMs: 0,
      running: undefined,
      soFar: noUsage(),
      whole: undefined,
    };
    this.#walks.set(uid, walk);
    walk.startedMs = nowMs;
    walk.soFar = noUsage();
    walk.running = measure(pod, walk.soFar).then(
      (whole) => {
        walk.whole = whole;
        walk.running = undefined;
        walk.tookMs = clock.monotonic() - nowMs;
      },
      // The pod keeps what was measured before, and is measured again.
      (error: unknown) => {
        walk.running = undefined;
        onError(pod, error);
      },
    );
    return walk;
  }
}

const noUsage = (): GrowingUsage => ({ usedBytes: 0, inodesUsed: 0 });

/** Resolves when the work has ended, or the time is over. */
async function settledWithin(clock: Clock, work: Promise<void>, waitMs: number): Promise<void> {
  if (waitMs <= 0) return;
  const done = new AbortController();
  await Promise.race([work, pause(clock, waitMs, done.signal)]);
  done.abort();
}
