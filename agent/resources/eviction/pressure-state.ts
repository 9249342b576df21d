/**
 * The state of the eviction manager between two observations, and its transitions: which thresholds are crossed and since when,
 * and which conditions hold. Pure.
 */
import { type Condition, conditionOf, type Observations, type Threshold, thresholdsMet } from './thresholds.ts';

/** The state after one observation. It is replaced and never changed. */
export interface PressureState {
  /** The thresholds that are crossed, and those that were due before and have not recovered by their minimum reclaim. */
  readonly met: readonly Threshold[];
  /** The thresholds of `met` whose grace period is over, on which the manager acts. */
  readonly due: readonly Threshold[];
  readonly firstMetAtMs: ReadonlyMap<Threshold, number>;
  /** The time at which a threshold of each condition was last met. */
  readonly lastMetAtMs: ReadonlyMap<Condition, number>;
  /** The conditions that the node reports: those with a threshold that is met now or was met within the transition period. */
  readonly conditions: ReadonlySet<Condition>;
}

/** The state before the first observation. */
export const CALM: PressureState = {
  met: [],
  due: [],
  firstMetAtMs: new Map(),
  lastMetAtMs: new Map(),
  conditions: new Set(),
};

interface PressureStep {
  readonly thresholds: readonly Threshold[];
  readonly observations: Observations;
  readonly nowMs: number;
  readonly transitionPeriodMs: number;
}

/** Returns the next state. */
export function advance(state: PressureState, step: PressureStep): PressureState {
  const { observations, nowMs } = step;
  const crossed = thresholdsMet(step.thresholds, observations, { withReclaim: false });
  const unresolved = thresholdsMet(state.due, observations, { withReclaim: true });
  const met = [...crossed, ...unresolved.filter((threshold) => !crossed.includes(threshold))];
  const firstMetAtMs = new Map(met.map((threshold) => [threshold, state.firstMetAtMs.get(threshold) ?? nowMs]));
  const lastMetAtMs = new Map(state.lastMetAtMs);
  for (const threshold of met) lastMetAtMs.set(conditionOf(threshold.signal), nowMs);
  const conditions = new Set(
    [...lastMetAtMs]
      .filter(([, atMs]) => nowMs - atMs < step.transitionPeriodMs || atMs === nowMs)
      .map(([condition]) => condition),
  );
  const due = met.filter((threshold) => nowMs - (firstMetAtMs.get(threshold) ?? nowMs) >= threshold.gracePeriodMs);
  return { met, due, firstMetAtMs, lastMetAtMs, conditions };
}
