/**
 * Parses eviction thresholds from the flags, and computes which thresholds an observation crosses. Pure. The error texts are
 * the kubelet's.
 */
import { parseDuration } from '../../../api/component/duration.ts';
import {
  formatQuantity,
  newQuantity,
  parseQuantity,
  type Quantity,
  QuantityError,
  wholeUnits,
} from '../../../api/meta/quantity.ts';

/** The signals that thresholds can have. */
export const SIGNALS = [
  'memory.available',
  'allocatableMemory.available',
  'nodefs.available',
  'nodefs.inodesFree',
  'imagefs.available',
  'imagefs.inodesFree',
  'containerfs.available',
  'containerfs.inodesFree',
  'pid.available',
] as const;

/** The name of a signal, as in `--eviction-hard`. */
export type Signal = (typeof SIGNALS)[number];
/** A pressure condition of the node. */
export type Condition = 'MemoryPressure' | 'DiskPressure' | 'PIDPressure';
/** The scarce resources, with their names in requests and messages. */
export type StarvedResource = 'memory' | 'ephemeral-storage' | 'inodes' | 'pids';

interface Meaning {
  readonly condition: Condition;
  readonly resource: StarvedResource;
}

const MEMORY: Meaning = { condition: 'MemoryPressure', resource: 'memory' };
const STORAGE: Meaning = { condition: 'DiskPressure', resource: 'ephemeral-storage' };
const INODES: Meaning = { condition: 'DiskPressure', resource: 'inodes' };

const MEANINGS: Readonly<Record<Signal, Meaning>> = {
  'memory.available': MEMORY,
  'allocatableMemory.available': MEMORY,
  'nodefs.available': STORAGE,
  'nodefs.inodesFree': INODES,
  'imagefs.available': STORAGE,
  'imagefs.inodesFree': INODES,
  'containerfs.available': STORAGE,
  'containerfs.inodesFree': INODES,
  'pid.available': { condition: 'PIDPressure', resource: 'pids' },
};

/** An amount (`100Mi`), or a share of the capacity. */
type ThresholdValue = { readonly quantity: Quantity } | { readonly percent: number };

/** A parsed threshold. */
export interface Threshold {
  readonly signal: Signal;
  readonly value: ThresholdValue;
  /** 0 for a hard threshold. */
  readonly gracePeriodMs: number;
  readonly minimumReclaim: ThresholdValue | undefined;
}

/** The configuration of the eviction manager. */
export interface EvictionSettings {
  readonly thresholds: readonly Threshold[];
  /** The value of `--eviction-pressure-transition-period`. */
  readonly transitionPeriodMs: number;
  /**
   * `--eviction-max-pod-grace-period` for soft thresholds. The least is one second, also for a negative number, as in the
   * kubelet.
   */
  readonly maxPodGracePeriodSeconds: number;
  /** The value of `--local-storage-capacity-isolation`. */
  readonly localStorage: boolean;
}

/** The measurement of a signal, in bytes, inodes or process ids. */
export interface Observation {
  readonly available: number;
  readonly capacity: number;
}

/** The measured signals. Signals that could not be measured are absent. */
export type Observations = ReadonlyMap<Signal, Observation>;

/** The values of the flags `--eviction-*`, by signal. */
export interface ThresholdFlags {
  readonly hard: Readonly<Record<string, string>>;
  readonly soft: Readonly<Record<string, string>>;
  readonly softGracePeriod: Readonly<Record<string, string>>;
  readonly minimumReclaim: Readonly<Record<string, string>>;
  /** Whether all pods together are limited to the allocatable resources: `--enforce-node-allocatable` has `pods`. */
  readonly enforcePods: boolean;
}

/** The kubelet's defaults on Linux, which `mergeDefaultEvictionSettings` adds to `--eviction-hard`. */
export const DEFAULT_HARD: Readonly<Record<string, string>> = {
  'memory.available': '100Mi',
  'nodefs.available': '10%',
  'nodefs.inodesFree': '5%',
  'imagefs.available': '15%',
  'imagefs.inodesFree': '5%',
};

/** The error of a flag whose value is not a valid threshold. */
export class ThresholdError extends Error {
  override readonly name = 'ThresholdError';
}

/**
 * Parses thresholds. Throws `ThresholdError`. A threshold of 0 % or 100 % is left out. With `enforcePods`, the hard threshold
 * of `memory.available` also holds for `allocatableMemory.available`.
 */
export function parseThresholds(flags: ThresholdFlags): readonly Threshold[] {
  const reclaim = new Map<Signal, ThresholdValue>();
  for (const [name, text] of Object.entries(flags.minimumReclaim))
    reclaim.set(signalOf(name), parseReclaim(text, signalOf(name)));
  const grace = new Map<Signal, number>();
  for (const [name, text] of Object.entries(flags.softGracePeriod)) grace.set(signalOf(name), parseGrace(text));
  const parse = (list: Readonly<Record<string, string>>, graceOf: (signal: Signal) => number): Threshold[] =>
    Object.entries(list).flatMap(([name, text]) => {
      const signal = signalOf(name);
      const value = parseValue(text, signal);
      if ('percent' in value && (value.percent === 0 || value.percent === 1)) return [];
      return [{ signal, value, gracePeriodMs: graceOf(signal), minimumReclaim: reclaim.get(signal) }];
    });
  const hard = parse(flags.hard, () => 0);
  const soft = parse(flags.soft, (signal) => {
    const found = grace.get(signal);
    if (found === undefined)
      throw new ThresholdError(`grace period must be specified for the soft eviction threshold ${signal}`);
    return found;
  });
  const allocatable = flags.enforcePods
    ? hard
        .filter((threshold) => threshold.signal === 'memory.available')
        .map((threshold): Threshold => ({ ...threshold, signal: 'allocatableMemory.available' }))
    : [];
  return [...hard, ...soft, ...allocatable];
}

function signalOf(name: string): Signal {
  const found = SIGNALS.find((signal) => signal === name);
  if (found === undefined) throw new ThresholdError(`unsupported eviction signal ${name}`);
  return found;
}

function parseValue(written: string, signal: Signal): ThresholdValue {
  // `memory.available<100Mi` is the entry `memory.available` with the text `<100Mi`.
  const text = written.replace(/^</, '');
  const value = parseAmount(text);
  if ('quantity' in value) {
    if (wholeUnits(value.quantity) <= 0n)
      throw new ThresholdError(`eviction threshold ${signal} must be positive: ${formatQuantity(value.quantity)}`);
  } else if (value.percent < 0)
    throw new ThresholdError(`eviction percentage threshold ${signal} must be >= 0%: ${text}`);
  else if (value.percent > 1)
    throw new ThresholdError(`eviction percentage threshold ${signal} must be <= 100%: ${text}`);
  return value;
}

function parseReclaim(text: string, signal: Signal): ThresholdValue {
  const value = parseAmount(text);
  if ('percent' in value && value.percent <= 0)
    throw new ThresholdError(`eviction percentage minimum reclaim ${signal} must be positive: ${text}`);
  if ('quantity' in value && wholeUnits(value.quantity) < 0n)
    throw new ThresholdError(`negative eviction minimum reclaim specified for ${signal}`);
  return value;
}

function parseAmount(text: string): ThresholdValue {
  if (text.endsWith('%')) {
    // The kubelet computes in single precision, and the allocatable resources show it.
    const percent = Math.fround(Number(text.slice(0, -1)) / 100);
    if (Number.isNaN(percent))
      throw new ThresholdError(`strconv.ParseFloat: parsing "${text.slice(0, -1)}": invalid syntax`);
    return { percent };
  }
  try {
    return { quantity: parseQuantity(text) };
  } catch (error) {
    if (!(error instanceof QuantityError)) throw error;
    throw new ThresholdError(error.message, { cause: error });
  }
}

function parseGrace(text: string): number {
  const total = parseDuration(text);
  if (total === undefined) throw new ThresholdError(`time: invalid duration "${text}"`);
  if (text.startsWith('-'))
    throw new ThresholdError(`invalid eviction grace period specified: ${text}, must be a positive value`);
  return total;
}

/** Returns an amount in units of the signal: bytes, inodes, processes. */
export function amountOf(value: ThresholdValue, capacity: number): number {
  // The kubelet computes percentages in single precision. The same precision gives the same amounts to the byte.
  return 'percent' in value ? Math.floor(capacity * Math.fround(value.percent)) : Number(wholeUnits(value.quantity));
}

/** Formats a value as an amount or a share of the capacity, for example `100Mi` or `10%`. */
export function formatValue(value: ThresholdValue): string {
  return 'percent' in value ? `${Number((value.percent * 100).toFixed(4))}%` : formatQuantity(value.quantity);
}

/**
 * Whether the observation is below the threshold. With `withReclaim`, a threshold counts as crossed until its minimum reclaim
 * is free as well.
 */
export function isMet(
  threshold: Threshold,
  observation: Observation,
  { withReclaim }: { readonly withReclaim: boolean },
): boolean {
  const reclaim =
    withReclaim && threshold.minimumReclaim !== undefined
      ? amountOf(threshold.minimumReclaim, observation.capacity)
      : 0;
  return amountOf(threshold.value, observation.capacity) + reclaim > observation.available;
}

/**
 * Returns the thresholds that are crossed, as `isMet` decides. A threshold whose signal was not measured is not crossed.
 */
export function thresholdsMet(
  thresholds: readonly Threshold[],
  observations: Observations,
  options: { readonly withReclaim: boolean },
): readonly Threshold[] {
  return thresholds.filter((threshold) => {
    const observation = observations.get(threshold.signal);
    return observation !== undefined && isMet(threshold, observation, options);
  });
}

/** Returns the condition that a crossed threshold of the signal sets. */
export const conditionOf = (signal: Signal): Condition => MEANINGS[signal].condition;

/** Returns the resource that pods are ranked by. */
export const resourceOf = (signal: Signal): StarvedResource => MEANINGS[signal].resource;

const REQUESTED: Readonly<Record<StarvedResource, boolean>> = {
  memory: true,
  'ephemeral-storage': true,
  inodes: false,
  pids: false,
};

/** Whether pods request the resource. Amounts of such resources are in bytes; inodes and processes are counted. */
export function isRequested(resource: StarvedResource): resource is 'memory' | 'ephemeral-storage' {
  return REQUESTED[resource];
}

/** Sorts by urgency: memory comes first, and the others keep their order. */
export function byUrgency(thresholds: readonly Threshold[]): readonly Threshold[] {
  const rank = (threshold: Threshold): number => (resourceOf(threshold.signal) === 'memory' ? 0 : 1);
  return thresholds.toSorted((a, b) => rank(a) - rank(b));
}

/** Formats an amount of a resource: bytes in binary units, counts as they are. */
export function formatAmount(resource: StarvedResource, amount: number): string {
  return formatQuantity(newQuantity(Math.floor(amount), isRequested(resource) ? 'BinarySI' : 'DecimalSI'));
}

/** Formats the amount of a threshold as in messages of evictions: a share of the capacity is in binary units. */
export function formatThreshold(value: ThresholdValue, capacity: number): string {
  return formatQuantity('quantity' in value ? value.quantity : newQuantity(amountOf(value, capacity), 'BinarySI'));
}
