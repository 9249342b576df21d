/**
 * Turns the proposal of the metrics into the next number of replicas: recent recommendations stabilize it, policies limit its
 * rate of change, and it stays between minimum and maximum.
 */
import type { ScalingRules } from '../../registry/kinds/autoscaling/autoscaling-conversion.ts';

interface Recommendation {
  readonly replicas: number;
  readonly atMs: number;
}

/** A past change; `change` is never negative. */
interface ScaleEvent {
  readonly change: number;
  readonly atMs: number;
}

/** The recent history of one autoscaler. */
export interface ScalingHistory {
  recommendations: readonly Recommendation[];
  ups: readonly ScaleEvent[];
  downs: readonly ScaleEvent[];
}

/** The reason and the message of a condition. */
interface ConditionText {
  readonly reason: string;
  readonly message: string;
}

/** The next number of replicas, with the conditions that explain it. */
export interface Decision {
  readonly replicas: number;
  /** The condition `AbleToScale`, always true. */
  readonly able: ConditionText;
  /** The condition `ScalingLimited`. */
  readonly limited: ConditionText & { readonly isLimited: boolean };
}

/** `minReplicas` and `maxReplicas`, both included. */
interface Bounds {
  readonly min: number;
  readonly max: number;
}

const READY: ConditionText = { reason: 'ReadyForNewScale', message: 'recommended size matches current size' };
const DOWN_STABILIZED: ConditionText = {
  reason: 'ScaleDownStabilized',
  message: 'recent recommendations were higher than current one, applying the highest recent recommendation',
};
const UP_STABILIZED: ConditionText = {
  reason: 'ScaleUpStabilized',
  message: 'recent recommendations were lower than current one, applying the lowest recent recommendation',
};
const WITHIN: ConditionText = {
  reason: 'DesiredWithinRange',
  message: 'the desired count is within the acceptable range',
};
const TOO_MANY: ConditionText = {
  reason: 'TooManyReplicas',
  message: 'the desired replica count is more than the maximum replica count',
};
const TOO_FEW: ConditionText = {
  reason: 'TooFewReplicas',
  message: 'the desired replica count is less than the minimum replica count',
};
const UP_LIMIT: ConditionText = {
  reason: 'ScaleUpLimit',
  message: 'the desired replica count is increasing faster than the maximum scale rate',
};
const DOWN_LIMIT: ConditionText = {
  reason: 'ScaleDownLimit',
  message: 'the desired replica count is decreasing faster than the maximum scale rate',
};

/** The number to which an autoscaler may always grow at once, as in kube-controller-manager (`scaleUpLimitMinimum`). */
const MIN_SCALE_UP = 4;

/**
 * Decides on the next number of replicas of an autoscaler without `behavior`, considering the recommendations of the last
 * `downWindowMs` milliseconds. Adds the desired number to the recommendations in `history`.
 */
export function decide(
  input: { readonly current: number; readonly desired: number; readonly bounds: Bounds; readonly nowMs: number },
  history: ScalingHistory,
  downWindowMs: number,
): Decision {
  const { current, desired, bounds, nowMs } = input;
  const recent = history.recommendations.filter(({ atMs }) => atMs > nowMs - downWindowMs);
  const stabilized = Math.max(desired, ...recent.map(({ replicas }) => replicas));
  history.recommendations = [...recent, { replicas: desired, atMs: nowMs }];
  const able = stabilized === desired ? READY : DOWN_STABILIZED;
  const upLimit = Math.max(2 * current, MIN_SCALE_UP);
  const [high, tooHigh] = bounds.max > upLimit ? [upLimit, UP_LIMIT] : [bounds.max, TOO_MANY];
  return { able, ...clamp(stabilized, { low: bounds.min, tooLow: TOO_FEW, high, tooHigh }) };
}

function clamp(
  wanted: number,
  range: {
    readonly low: number;
    readonly tooLow: ConditionText;
    readonly high: number;
    readonly tooHigh: ConditionText;
  },
): Pick<Decision, 'replicas' | 'limited'> {
  if (wanted < range.low) return { replicas: range.low, limited: { ...range.tooLow, isLimited: true } };
  if (wanted > range.high) return { replicas: range.high, limited: { ...range.tooHigh, isLimited: true } };
  return { replicas: wanted, limited: { ...WITHIN, isLimited: false } };
}

/** `spec.behavior` with its defaults. */
export interface Behavior {
  readonly scaleUp: ScalingRules;
  readonly scaleDown: ScalingRules;
}

/** Decides as `decide` does, with the windows and policies of the autoscaler's `behavior`. */
export function decideWithBehavior(
  input: { readonly current: number; readonly desired: number; readonly bounds: Bounds; readonly nowMs: number },
  behavior: Behavior,
  history: ScalingHistory,
  downWindowMs: number,
): Decision {
  const { current, desired, bounds, nowMs } = input;
  const upWindow = (behavior.scaleUp.stabilizationWindowSeconds ?? 0) * 1000;
  const ownDown = behavior.scaleDown.stabilizationWindowSeconds;
  const downWindow = ownDown === undefined ? downWindowMs : ownDown * 1000;
  const within = (windowMs: number): number[] =>
    history.recommendations.filter(({ atMs }) => atMs > nowMs - windowMs).map(({ replicas }) => replicas);
  const lowest = Math.min(desired, ...within(upWindow));
  const highest = Math.max(desired, ...within(downWindow));
  const longest = Math.max(upWindow, downWindow);
  history.recommendations = [
    ...history.recommendations.filter(({ atMs }) => atMs > nowMs - longest),
    { replicas: desired, atMs: nowMs },
  ];
  const stabilized = Math.min(Math.max(current, lowest), highest);
  const able = stabilized === desired ? READY : desired >= current ? UP_STABILIZED : DOWN_STABILIZED;
  if (stabilized > current) {
    const rate = Math.max(current, upLimit(current, behavior.scaleUp, history, nowMs));
    const [high, tooHigh] = bounds.max > rate ? [rate, UP_LIMIT] : [bounds.max, TOO_MANY];
    return { able, ...clamp(stabilized, { low: 0, tooLow: TOO_FEW, high, tooHigh }) };
  }
  if (stabilized < current) {
    const rate = Math.min(current, downLimit(current, behavior.scaleDown, history, nowMs));
    const [low, tooLow] = bounds.min < rate ? [rate, DOWN_LIMIT] : [bounds.min, TOO_FEW];
    return { able, ...clamp(stabilized, { low, tooLow, high: Number.MAX_SAFE_INTEGER, tooHigh: TOO_MANY }) };
  }
  return { able, replicas: stabilized, limited: { ...WITHIN, isLimited: false } };
}

function changeIn(events: readonly ScaleEvent[], periodSeconds: number, nowMs: number): number {
  return events.reduce((sum, { change, atMs }) => (atMs > nowMs - periodSeconds * 1000 ? sum + change : sum), 0);
}

/** Returns the number of replicas at the beginning of the period. */
function startOf(current: number, periodSeconds: number, { ups, downs }: ScalingHistory, nowMs: number): number {
  return current - changeIn(ups, periodSeconds, nowMs) + changeIn(downs, periodSeconds, nowMs);
}

function upLimit(current: number, rules: ScalingRules, history: ScalingHistory, nowMs: number): number {
  if (rules.selectPolicy === 'Disabled') return current;
  const limits = (rules.policies ?? []).map(({ type, value = 0, periodSeconds = 0 }) => {
    const start = startOf(current, periodSeconds, history, nowMs);
    return type === 'Pods' ? start + value : Math.ceil(start * (1 + value / 100));
  });
  if (limits.length === 0) return current;
  return rules.selectPolicy === 'Min' ? Math.min(...limits) : Math.max(...limits);
}

function downLimit(current: number, rules: ScalingRules, history: ScalingHistory, nowMs: number): number {
  if (rules.selectPolicy === 'Disabled') return current;
  const limits = (rules.policies ?? []).map(({ type, value = 0, periodSeconds = 0 }) => {
    const start = startOf(current, periodSeconds, history, nowMs);
    return type === 'Pods' ? start - value : Math.trunc(start * (1 - value / 100));
  });
  if (limits.length === 0) return current;
  return rules.selectPolicy === 'Min' ? Math.max(...limits) : Math.min(...limits);
}

/** Adds a change to the history, and drops the changes before the longest period. Does nothing without `behavior`. */
export function recordChange(
  history: ScalingHistory,
  change: { readonly from: number; readonly to: number; readonly nowMs: number },
  behavior: Behavior | undefined,
): void {
  if (behavior === undefined) return;
  const { from, to, nowMs } = change;
  const longest = Math.max(
    0,
    ...[...(behavior.scaleUp.policies ?? []), ...(behavior.scaleDown.policies ?? [])].map(
      ({ periodSeconds = 0 }) => periodSeconds,
    ),
  );
  const recent = (events: readonly ScaleEvent[]): ScaleEvent[] =>
    events.filter(({ atMs }) => atMs > nowMs - longest * 1000);
  history.ups = recent(history.ups);
  history.downs = recent(history.downs);
  if (to > from) history.ups = [...history.ups, { change: to - from, atMs: nowMs }];
  else history.downs = [...history.downs, { change: from - to, atMs: nowMs }];
}
