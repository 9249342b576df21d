/**
 * Delays the next pod of a job after failures: by 10 s after the first one and twice as long after each further one, to 10
 * minutes at most.
 */
import { backoffDelay } from '../../../api/machinery/backoff.ts';
import type { Pod } from '../../../api/kinds/kinds.ts';
import { podCondition } from '../pod-state.ts';

const BACKOFF = { firstMs: 10_000, longestMs: 600_000 };

/** Returns the delay after a failure before the next pod is created. */
export function backoffMs(consecutiveFailures: number): number {
  if (consecutiveFailures <= 0) return 0;
  return backoffDelay(consecutiveFailures, BACKOFF);
}

/** Returns the time at which a pod terminated, in ms since the epoch, or the best estimate that its status allows. */
export function finishTime(pod: Pod): number {
  const { containerStatuses = [] } = pod.status ?? {};
  const exits = containerStatuses.map(({ state }) => Date.parse(state?.terminated?.finishedAt ?? ''));
  if (exits.length > 0 && exits.every(Number.isFinite)) return Math.max(...exits);
  const ready = podCondition(pod, 'Ready');
  const unreadyMs = ready?.status === 'False' ? Date.parse(ready.lastTransitionTime ?? '') : Number.NaN;
  if (Number.isFinite(unreadyMs)) return unreadyMs;
  const { deletionTimestamp, deletionGracePeriodSeconds = 0, creationTimestamp } = pod.metadata;
  const deletedMs = Date.parse(deletionTimestamp ?? '') - deletionGracePeriodSeconds * 1000;
  return Number.isFinite(deletedMs) ? deletedMs : Date.parse(creationTimestamp ?? '') || 0;
}

/** The failures of a job since its last success. `lastMs` is the time of the newest one, in ms since the epoch. */
export interface JobFailures {
  readonly count: number;
  readonly lastMs: number;
}

const NO_FAILURES: JobFailures = { count: 0, lastMs: 0 };

/** Keeps the failures of each job that were counted in its status. */
export class JobBackOff {
  readonly #failures = new Map<string, JobFailures>();

  /** Returns the failures with these newly finished pods. A success resets the count, and later failures add to it. */
  failuresWith(key: string, succeeded: readonly Pod[], failed: readonly Pod[]): JobFailures {
    const former = this.#failures.get(key) ?? NO_FAILURES;
    if (succeeded.length + failed.length === 0) return former;
    const successMs = Math.max(...succeeded.map(finishTime));
    const later = failed.map(finishTime).filter((ms) => ms > successMs);
    if (later.length === 0) return NO_FAILURES;
    const before = succeeded.length > 0 ? 0 : former.count;
    return { count: before + later.length, lastMs: Math.max(...later) };
  }

  /** Records failures that are counted in the status of the job. */
  record(key: string, failures: JobFailures): void {
    if (failures.count === 0) this.#failures.delete(key);
    else this.#failures.set(key, failures);
  }

  forget(key: string): void {
    this.#failures.delete(key);
  }
}

/** Returns how long the next pod waits; 0 or less if it may be created. */
export function waitAfter({ count, lastMs }: JobFailures, nowMs: number): number {
  return count === 0 ? 0 : lastMs + backoffMs(count) - nowMs;
}
