/**
 * Computes the cost of reading a whole value. Functions that do so charge it, so that the time of an expression follows its
 * cost, however large its values are.
 */
import type { FunctionRow } from './functions.ts';
import { adapt, type CelValue, Duration, entriesOf, OpaqueValue, Optional, Timestamp, TypeValue } from './values.ts';

/** The characters or bytes that a function reads for one unit. */
const READ_IN_ONE = 10;
/** The characters or bytes that are compared for one unit. */
const COMPARED_IN_ONE = 100;

/** The units for an entry of a map, which is looked up by its key. */
const ENTRY_COST = 8;

function costOf(value: CelValue, inOne: number): number {
  if (typeof value === 'string' || value instanceof Uint8Array) return Math.floor(value.length / inOne);
  if (value === null || typeof value !== 'object') return 0;
  if (Array.isArray(value)) return value.reduce<number>((sum, item) => sum + 1 + costOf(adapt(item), inOne), 0);
  if (value instanceof Optional) return value.value === undefined ? 0 : costOf(value.value, inOne);
  if (value instanceof Timestamp || value instanceof Duration || value instanceof TypeValue) return 0;
  if (value instanceof OpaqueValue) return 0;
  return (entriesOf(value) ?? []).reduce(
    (sum, [key, inner]) => sum + ENTRY_COST + costOf(key, inOne) + costOf(inner, inOne),
    0,
  );
}

/**
 * Returns one unit for ten characters or bytes, one for each element and `ENTRY_COST` for each entry of a map, at any depth.
 */
export const readingCost = (value: CelValue): number => costOf(value, READ_IN_ONE);

/** Returns the cost like `readingCost`, for a comparison with a value of the same size: comparing text is faster. */
export const comparingCost = (value: CelValue): number => costOf(value, COMPARED_IN_ONE);

/**
 * Wraps functions that read their arguments as a whole. `constant` is a further cost of each call, such as parsing a short
 * text.
 */
export function reading(rows: readonly FunctionRow[], constant = 0): FunctionRow[] {
  return rows.map((row) => {
    const { run } = row.overload;
    return {
      ...row,
      overload: {
        ...row.overload,
        run(args, spending) {
          spending.spend(args.reduce<number>((sum, arg) => sum + readingCost(arg), constant));
          return run(args, spending);
        },
      },
    };
  });
}
