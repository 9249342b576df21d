/**
 * Defines ranges of sizes and costs, with the additions and multiplications of the static cost estimate. Values saturate at
 * `UNBOUNDED`, which means that no limit is known.
 */

/** The least and the greatest value, both included. */
export interface Range {
  readonly min: number;
  readonly max: number;
}

/** 2^64, at which cel-go saturates its unsigned integers. */
export const UNBOUNDED = 2 ** 64;
/** The cost of a constant, and the size of an empty value. */
export const NOTHING: Range = { min: 0, max: 0 };
/** The cost of one step. */
export const ONE: Range = { min: 1, max: 1 };
/** The size of a value without a declared limit. */
export const ANYTHING: Range = { min: 0, max: UNBOUNDED };

const capped = (value: number): number => Math.min(value, UNBOUNDED);

/** Returns a range with one value. */
export const exactly = (value: number): Range => ({ min: value, max: value });
/** Returns the range from 0. */
export const upTo = (max: number): Range => ({ min: 0, max: capped(max) });

/** Adds the ranges, saturating. */
export function sum(...ranges: readonly Range[]): Range {
  return ranges.reduce((a, b) => ({ min: capped(a.min + b.min), max: capped(a.max + b.max) }), NOTHING);
}

/** Multiplies the ranges, saturating. */
export function product(a: Range, b: Range): Range {
  return { min: capped(a.min * b.min), max: capped(a.max * b.max) };
}

/** Multiplies the range and rounds up. */
export function scaled({ min, max }: Range, factor: number): Range {
  return { min: capped(Math.ceil(min * factor)), max: capped(Math.ceil(max * factor)) };
}

/** Returns the smallest range that has both. */
export function union(a: Range, b: Range): Range {
  return { min: Math.min(a.min, b.min), max: Math.max(a.max, b.max) };
}
