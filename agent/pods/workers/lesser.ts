/** Compares times and periods that may be absent. */

/** Returns the lesser number, the only one if the other is absent, and `undefined` if both are. */
export function lesser(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined) return b;
  return b === undefined ? a : Math.min(a, b);
}
