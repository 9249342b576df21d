/** Reads values that are a number or a string (`IntOrString`): ports by number or name, counts by number or percentage. */
import { percentErrors } from './names.ts';

type IntOrString = number | string;

interface Rounding {
  readonly roundUp: boolean;
}

/** Returns the number in `40%`, or `undefined` if the text is not a percentage. */
export function parsePercent(text: string): number | undefined {
  return percentErrors(text).length === 0 ? Number(text.slice(0, -1)) : undefined;
}

/** Returns a count, or the percentage of `total`. Throws if the text is not a percentage. */
export function scaledValue(value: IntOrString, total: number, { roundUp }: Rounding): number {
  if (typeof value === 'number') return value;
  const percent = parsePercent(value);
  if (percent === undefined) {
    throw new TypeError(`invalid value for IntOrString: invalid type: string is not a percentage`);
  }
  const share = (percent * total) / 100;
  return roundUp ? Math.ceil(share) : Math.floor(share);
}
