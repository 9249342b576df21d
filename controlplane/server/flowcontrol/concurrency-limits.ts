/**
 * Divides the seats of the server among priority levels: nominal limits by shares, and how far each level may lend and borrow,
 * as kube-apiserver computes both (KEP-1040).
 */
import type { PriorityLevelSpec } from '../../registry/kinds/flowcontrol/flowcontrol-types.ts';

/** All values are numbers of seats. */
export interface ConcurrencyBounds {
  readonly nominal: number;
  /** The limit when all lendable seats are lent. */
  readonly lower: number;
  /** The limit to which the level may grow by borrowing. */
  readonly upper: number;
}

/** The default of `nominalConcurrencyShares`. */
const DEFAULT_SHARES = 30;

/**
 * Returns the bounds of each level when `total` seats are divided. The sum of nominal limits may exceed `total` because of
 * rounding up.
 */
export function concurrencyBounds<Name>(
  specs: ReadonlyMap<Name, PriorityLevelSpec>,
  total: number,
): Map<Name, ConcurrencyBounds> {
  let sum = 0;
  for (const spec of specs.values()) sum += sharesOf(spec);
  const bounds = new Map<Name, ConcurrencyBounds>();
  for (const [name, spec] of specs) {
    const nominal = sum === 0 ? 0 : Math.ceil((total * sharesOf(spec)) / sum);
    const lendable = Math.round((nominal * (partOf(spec)?.lendablePercent ?? 0)) / 100);
    const limit = spec.limited?.borrowingLimitPercent;
    const borrowable = limit === undefined ? total : Math.round((nominal * limit) / 100);
    bounds.set(name, { nominal, lower: nominal - lendable, upper: nominal + borrowable });
  }
  return bounds;
}

const partOf = (
  spec: PriorityLevelSpec,
): { nominalConcurrencyShares?: number | undefined; lendablePercent?: number | undefined } | undefined =>
  spec.type === 'Exempt' ? spec.exempt : spec.limited;

const sharesOf = (spec: PriorityLevelSpec): number =>
  partOf(spec)?.nominalConcurrencyShares ?? (spec.type === 'Exempt' ? 0 : DEFAULT_SHARES);

interface AllocationItem {
  readonly lower: number;
  readonly upper: number;
  readonly target: number;
}

/** The seats by the index of the level. */
interface Allocation {
  readonly seats: readonly number[];
  /** The proportion of its target that each level gets within its bounds. */
  readonly fairProportion: number;
}

/** The smallest target. The bounds are divided by targets, so that no target may be 0. */
const SMALLEST_TARGET = 0.001;

/**
 * Divides `total` fairly. Every item gets the same proportion of its target, clamped to its bounds, such that the sum is
 * `total`. If the bounds do not allow `total`, every item gets its nearest bound.
 */
export function allocateFairly(total: number, items: readonly AllocationItem[]): Allocation {
  const targets = items.map(({ target }) => Math.max(target, SMALLEST_TARGET));
  const seatsAt = (proportion: number): number[] =>
    items.map(({ lower, upper }, at) => Math.max(lower, Math.min(upper, proportion * (targets[at] ?? 0))));
  const sumAt = (proportion: number): number => seatsAt(proportion).reduce((sum, seats) => sum + seats, 0);
  // The sum grows piecewise linearly with the proportion and bends where an item reaches a bound.
  const bends = items
    .flatMap(({ lower, upper }, at) => [lower / (targets[at] ?? 1), upper / (targets[at] ?? 1)])
    .sort((a, b) => a - b);
  let from = bends[0] ?? 0;
  for (const to of bends) {
    const high = sumAt(to);
    if (high >= total) {
      const low = sumAt(from);
      const proportion = high === low ? from : from + ((to - from) * (total - low)) / (high - low);
      return { seats: seatsAt(Math.max(proportion, 0)), fairProportion: Math.max(proportion, 0) };
    }
    from = to;
  }
  return { seats: seatsAt(from), fairProportion: from };
}
