/** Formats a number as Go's `%v` prints a float64: with an exponent from a million on, and below a ten thousandth. */
export function goNumber(value: number): string {
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-4 && size < 1e6)) return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf';
  return value.toExponential().replace(/e([+-])(\d)$/, 'e$10$2');
}
