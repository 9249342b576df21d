/** Classifies numbers of JSON as Go's decoder does, and formats them as Go's `%v` does. */

/** Formats a float64 as Go's `%v` does: `0.5`, `1e+06`, `NaN`, `+Inf`. Zero has no sign. */
export function goNumber(value: number): string {
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-4 && size < 1e6)) return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf';
  return value.toExponential().replace(/e([+-])(\d)$/, 'e$10$2');
}

/** Whether Go's decoder of JSON reads the number as an int64. It reads any other number as a float64. */
export function isInt64(value: number | bigint): boolean {
  if (typeof value === 'number' && !Number.isInteger(value)) return false;
  const exact = BigInt(value);
  return BigInt.asIntN(64, exact) === exact;
}

/** Formats a number of JSON as Go's `%v` does after its decoder has read it, as an int64 if possible and else as a float64. */
export const numberText = (value: number | bigint): string =>
  isInt64(value) ? String(value) : goNumber(Number(value));
