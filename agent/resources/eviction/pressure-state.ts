/**
 * What the eviction manager remembers between two looks, and how a look moves it on: which thresholds are crossed and since
 * when, which conditions hold. Pure.
 */
import { type Condition, conditionOf, type Observations, type Threshold, thresholdsMet } from './thresholds.ts';

export interface PressureState {
  /** Crossed, or crossed before and not yet back by the minimum reclaim. */
  readonly met: readonly Threshold[];
  readonly firstMetAtMs: ReadonlyMap<Threshold, number>;
  /** When a condition was last seen by its thresholds. */
  readonly seenAtMs: ReadonlyMap<Condition, number>;
  /** Conditions that the node tells: seen within the transition period. */
  readonly conditions: ReadonlySet<Condition>;
}

export const CALM: PressureState = { met: [], firstMetAtMs: new Map(), seenAtMs: new Map(), conditions: new Set() };

export interface PressureStep {
  readonly thresholds: readonly Threshold[];
  readonly observations: Observations;
  readonly nowMs: number;
  readonly transitionPeriodMs: number;
}

/** The next state, and the thresholds whose grace period is over: those that something is done about. */
export function advance(
  state: PressureState,
  step: PressureStep,
): { readonly state: PressureState; readonly due: readonly Threshold[] } {
  const { observations, nowMs } = step;
  const crossed = thresholdsMet(step.thresholds, observations, { withReclaim: false });
  const unresolved = thresholdsMet(state.met, observations, { withReclaim: true });
  const met = [...crossed, ...unresolved.filter((threshold) => !crossed.includes(threshold))];
  const firstMetAtMs = new Map(met.map((threshold) => [threshold, state.firstMetAtMs.get(threshold) ?? nowMs]));
  const seenAtMs = new Map(state.seenAtMs);
  for (const threshold of met) seenAtMs.set(conditionOf(threshold.signal), nowMs);
  const conditions = new Set(
    [...seenAtMs]
      .filter(([, atMs]) => nowMs - atMs < step.transitionPeriodMs || atMs === nowMs)
      .map(([condition]) => condition),
  );
  const due = met.filter((threshold) => nowMs - (firstMetAtMs.get(threshold) ?? nowMs) >= threshold.gracePeriodMs);
  return { state: { met, firstMetAtMs, seenAtMs, conditions }, due };
}
