/**
 * Parses and formats RFC 3339 times in the forms of the API: UTC with whole seconds (`Time`) or exactly six decimals
 * (`MicroTime`). Parsing is as strict as that of kube-apiserver and has its messages.
 */
import { quoteText } from '../meta/quote.ts';

/** The error of a text that is no time. The message is that of Go's `time.Parse`. */
export class TimeError extends Error {
  override readonly name = 'TimeError';
}

const SECONDS = '2006-01-02T15:04:05Z07:00';
const MICROSECONDS = '2006-01-02T15:04:05.000000Z07:00';
const CANONICAL = /^(\d{4})-(\d\d)-(\d\d)T([01]\d|2[0-3]):(\d\d):(\d\d)Z$/;

/** In seconds since 1970. */
const START_OF_YEAR_0 = -62167219200;
const START_OF_YEAR_10000 = 253402300800;

/** Returns the canonical text of a `Time`, or `null` for the zero time. Throws `TimeError`. */
export function canonicalTime(text: string): string | null {
  if (CANONICAL.test(text) && Number.isFinite(Date.parse(text)) && isRealDay(text)) {
    return text === '0001-01-01T00:00:00Z' ? null : text;
  }
  const { seconds } = parse(text, SECONDS);
  const canonical = `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;
  return canonical === '0001-01-01T00:00:00Z' ? null : canonical;
}

/** Returns the canonical text of a `MicroTime`, or `null` for the zero time. Throws `TimeError`. */
export function canonicalMicroTime(text: string): string | null {
  const { seconds, fraction } = parse(text, MICROSECONDS);
  const whole = new Date(seconds * 1000).toISOString().slice(0, 19);
  return whole === '0001-01-01T00:00:00' && /^0*$/.test(fraction) ? null : `${whole}.${fraction.padEnd(6, '0')}Z`;
}

/** Whether the year in UTC of the seconds since 1970 is one that RFC 3339 can represent: 0 to 9999. */
export function hasFourDigitYear(seconds: number): boolean {
  return seconds >= START_OF_YEAR_0 && seconds < START_OF_YEAR_10000;
}

/** Whether the day exists. JavaScript converts 30 February to a day in March. */
function isRealDay(text: string): boolean {
  const day = Number(text.slice(8, 10));
  return day <= 28 || utcDate(Number(text.slice(0, 4)), Number(text.slice(5, 7)), day) !== undefined;
}

/**
 * Returns the seconds from 1970 to the start of a day in UTC, or `undefined` for a day that does not exist, such as 30
 * February.
 */
export function utcDate(year: number, month: number, day: number): number | undefined {
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day ? date.getTime() / 1000 : undefined;
}

/** The pieces of a time in their order: the text in the layout, the digits and the largest value. */
const PIECES = [
  { layout: '2006', digits: 4, min: 0, max: 9999, name: 'year' },
  { layout: '-' },
  { layout: '01', digits: 2, min: 1, max: 12, name: 'month' },
  { layout: '-' },
  { layout: '02', digits: 2, min: 1, max: 31, name: 'day' },
  { layout: 'T' },
  { layout: '15', digits: 2, min: 0, max: 23, name: 'hour' },
  { layout: ':' },
  { layout: '04', digits: 2, min: 0, max: 59, name: 'minute' },
  { layout: ':' },
  { layout: '05', digits: 2, min: 0, max: 59, name: 'second' },
] as const;

function parse(text: string, layout: string): { seconds: number; fraction: string } {
  const micro = layout === MICROSECONDS;
  const fail = (unread: string, element: string): never => {
    throw new TimeError(
      `parsing time ${quoteText(text)} as "${layout}": cannot parse ${quoteText(unread)} as "${element}"`,
    );
  };
  const numbers: number[] = [];
  let unread = text;
  for (const piece of PIECES) {
    if (!('digits' in piece)) {
      if (!unread.startsWith(piece.layout)) fail(unread, piece.layout);
      unread = unread.slice(1);
      continue;
    }
    const digits = unread.slice(0, piece.digits);
    if (digits.length < piece.digits || !/^\d+$/.test(digits)) fail(unread, piece.layout);
    const number = Number(digits);
    if (number < piece.min || number > piece.max)
      throw new TimeError(`parsing time ${quoteText(text)}: ${piece.name} out of range`);
    numbers.push(number);
    unread = unread.slice(piece.digits);
  }
  const fraction = (micro ? /^[.,](\d{6})/ : /^[.,](\d+)/).exec(unread);
  if (micro && fraction === null) fail(unread, '.000000');
  unread = unread.slice(fraction?.[0].length ?? 0);
  const zone = /^(?:Z|([+-])(\d\d):(\d\d))/.exec(unread);
  if (zone === null) return fail(unread, 'Z07:00');
  // Go also accepts offsets of 24 hours and of 60 minutes.
  if (Number(zone[2] ?? 0) > 24)
    throw new TimeError(`parsing time ${quoteText(text)}: time zone offset hour out of range`);
  if (Number(zone[3] ?? 0) > 60)
    throw new TimeError(`parsing time ${quoteText(text)}: time zone offset minute out of range`);
  unread = unread.slice(zone[0].length);
  if (unread !== '') throw new TimeError(`parsing time ${quoteText(text)}: extra text: ${quoteText(unread)}`);
  const [year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0] = numbers;
  const date = utcDate(year, month, day);
  if (date === undefined) throw new TimeError(`parsing time ${quoteText(text)}: day out of range`);
  const offset =
    zone[1] === undefined ? 0 : (zone[1] === '-' ? -1 : 1) * (Number(zone[2]) * 3600 + Number(zone[3]) * 60);
  const seconds = date + hour * 3600 + minute * 60 + second - offset;
  // kube-apiserver accepts a zone that moves the time out of these years, and then prints a year that no client can parse.
  if (!hasFourDigitYear(seconds)) throw new TimeError(`parsing time ${quoteText(text)}: year out of range`);
  return { seconds, fraction: fraction?.[1] ?? '' };
}
