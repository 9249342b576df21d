/** Formats doubles as cel-go does, for `string(double)` and for errors. */

/** The exponent from which on a number is written in scientific notation. */
const MIN_SCIENTIFIC_EXPONENT = 6;

/** Formats a double like Go's `strconv.FormatFloat` with the format `g`: with exponents below -4 and from 6 on. */
export function doubleText(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? '+Inf' : '-Inf';
  const scientific = value.toExponential();
  const exponent = Number(scientific.slice(scientific.indexOf('e') + 1));
  if (exponent >= -4 && exponent < MIN_SCIENTIFIC_EXPONENT) return Object.is(value, -0) ? '-0' : String(value);
  return scientific.replace(/e([+-])(\d)$/, 'e$10$2');
}
