/**
 * Ranges of sizes and costs, with the additions and multiplications of the static cost estimate. Values saturate at
 * `UNBOUNDED`, which means that no limit is known.
 */

export interface Range {
  readonly min: number;
  readonly max: number;
}

export const UNBOUNDED = 2 ** 64;
export const NOTHING: Range = { min: 0, max: 0 };
export const ONE: Range = { min: 1, max: 1 };
export const ANYTHING: Range = { min: 0, max: UNBOUNDED };

const capped = (value: number): number => Math.min(value, UNBOUNDED);

export const exactly = (value: number): Range => ({ min: value, max: value });
export const upTo = (max: number): Range => ({ min: 0, max: capped(max) });

export function sum(...ranges: readonly Range[]): Range {
  return ranges.reduce((a, b) => ({ min: capped(a.min + b.min), max: capped(a.max + b.max) }), NOTHING);
}

export function product(a: Range, b: Range): Range {
  return { min: capped(a.min * b.min), max: capped(a.max * b.max) };
}

/** Multiplies the range and rounds up. */
export function scaled({ min, max }: Range, factor: number): Range {
  return { min: capped(Math.ceil(min * factor)), max: capped(Math.ceil(max * factor)) };
}

export function union(a: Range, b: Range): Range {
  return { min: Math.min(a.min, b.min), max: Math.max(a.max, b.max) };
}
