/**
 * Implements the timestamps and durations of CEL: RFC 3339 and Go's `1h2m3s`, with nanosecond precision, and the parts of a
 * date in a time zone.
 */
import { trimEnd } from '../component/trim.ts';
import { type FunctionRow, method } from './functions.ts';
import { reading } from './reading-cost.ts';
import { duration, int, string, timestamp } from './types.ts';
import { INT64_MAX } from '../meta/integers.ts';
import { utcDate } from '../schema/time.ts';
import { CelError, Duration, Timestamp } from './values.ts';

const SECOND = 1_000_000_000n;
const UNITS: ReadonlyMap<string, bigint> = new Map(
  Object.entries({
    ns: 1n,
    us: 1000n,
    µs: 1000n,
    μs: 1000n,
    ms: 1_000_000n,
    s: SECOND,
    m: 60n * SECOND,
    h: 3600n * SECOND,
  }),
);
const TIME = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9})\d*)?(?:Z|([+-])(\d{2}):(\d{2}))$/;

/** Parses an RFC 3339 time. Throws `CelError` for another text or a time outside of the years 1 to 9999. */
export function parseTimestamp(text: string): Timestamp {
  const refuse = (): CelError => new CelError(`type conversion error from 'string' to 'google.protobuf.Timestamp'`);
  const parts = TIME.exec(text);
  if (parts === null) throw refuse();
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = parts.slice(1, 7).map(Number);
  const [sign = '+', zoneHours = '0', zoneMinutes = '0'] = parts.slice(8);
  const date = utcDate(year, month, day);
  if (date === undefined || hour > 23 || minute > 59 || second > 59) throw refuse();
  if (Number(zoneHours) > 24 || Number(zoneMinutes) > 60) throw refuse();
  const zone = (Number(zoneHours) * 60 + Number(zoneMinutes)) * (sign === '-' ? -60 : 60);
  const seconds = BigInt(date) + BigInt(hour * 3600 + minute * 60 + second - zone);
  return new Timestamp(seconds * SECOND + BigInt((parts[7] ?? '').padEnd(9, '0')));
}

/** Formats a timestamp by RFC 3339 in UTC, with as many fraction digits as it needs. */
export function formatTimestamp({ ns }: Timestamp): string {
  const remainder = ((ns % SECOND) + SECOND) % SECOND;
  const seconds = (ns - remainder) / SECOND;
  const base = new Date(Number(seconds) * 1000).toISOString().slice(0, 19);
  const fraction = remainder === 0n ? '' : `.${trimEnd(String(remainder).padStart(9, '0'), '0')}`;
  return `${base}${fraction}Z`;
}

/** Returns the whole units (of so many nanoseconds) since 1970, rounded down, as Go counts them also before 1970. */
export function wholeSince1970({ ns }: Timestamp, unitNs: bigint): bigint {
  const remainder = ns % unitNs;
  return ns / unitNs - (remainder < 0n ? 1n : 0n);
}

const MILLISECOND = 1_000_000n;

const dateOf = (time: Timestamp): Date => new Date(Number(wholeSince1970(time, MILLISECOND)));

/**
 * Parses a duration in Go's form, such as `1h30m` or `-1.5s`. Throws `CelError` for another text or more than 64 bits of
 * nanoseconds.
 */
export function parseDuration(text: string): Duration {
  const refuse = (): CelError => new CelError(`type conversion error from 'string' to 'google.protobuf.Duration'`);
  const negative = text.startsWith('-');
  const body = text.replace(/^[+-]/, '');
  if (body === '0') return new Duration(0n);
  let ns = 0n;
  let length = 0;
  for (const [whole, digits = '', fraction = '', unit = ''] of body.matchAll(
    /(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)/gy,
  )) {
    const size = UNITS.get(unit);
    if (size === undefined || (digits === '' && fraction === '')) throw refuse();
    ns += BigInt(digits === '' ? '0' : digits) * size;
    if (fraction !== '') ns += (BigInt(fraction) * size) / 10n ** BigInt(fraction.length);
    length += whole.length;
  }
  if (length === 0 || length !== body.length || ns > INT64_MAX) throw refuse();
  return new Duration(negative ? -ns : ns);
}

/** Formats a duration as seconds with the fraction of a double, such as `90.5s`. */
export function formatDuration({ ns }: Duration): string {
  const seconds = Number(ns / SECOND) + Number(ns % SECOND) / 1e9;
  // The number is less than 2^34 seconds, and no less than a nanosecond, which JavaScript writes with an exponent.
  const text = Math.abs(seconds) < 1e-6 ? trimEnd(seconds.toFixed(9), '0').replace(/\.$/, '') : String(seconds);
  return `${text}s`;
}

type Part = (date: Date) => number;

const PARTS: Readonly<Record<string, Part>> = {
  getFullYear: (date) => date.getUTCFullYear(),
  getMonth: (date) => date.getUTCMonth(),
  getDate: (date) => date.getUTCDate(),
  getDayOfMonth: (date) => date.getUTCDate() - 1,
  getDayOfWeek: (date) => date.getUTCDay(),
  getDayOfYear: (date) =>
    Math.floor(
      (Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()) - Date.UTC(date.getUTCFullYear(), 0, 1)) /
        86_400_000,
    ),
  getHours: (date) => date.getUTCHours(),
  getMinutes: (date) => date.getUTCMinutes(),
  getSeconds: (date) => date.getUTCSeconds(),
  getMilliseconds: (date) => date.getUTCMilliseconds(),
};

/** Returns a date whose UTC parts are the local parts in the time zone. */
function inZone(time: Timestamp, zone: string): Date {
  const ms = dateOf(time).getTime();
  if (zone === '' || zone === 'Local') return new Date(ms);
  const offset = /^([+-]?)(\d{1,2}):(\d{2})$/.exec(zone);
  if (offset !== null) {
    const minutes = Number(offset[2]) * 60 + Number(offset[3]);
    return new Date(ms + (offset[1] === '-' ? -minutes : minutes) * 60_000);
  }
  try {
    const parts = new Intl.DateTimeFormat('en-US', {
      timeZone: zone,
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    }).formatToParts(new Date(ms));
    const number = (type: string): number => Number(parts.find((part) => part.type === type)?.value ?? 0);
    const day = utcDate(number('year'), number('month'), number('day')) ?? Number.NaN;
    const seconds = day + number('hour') * 3600 + number('minute') * 60 + number('second');
    return new Date(seconds * 1000 + (((ms % 1000) + 1000) % 1000));
  } catch (error) {
    throw new CelError(`unknown time zone ${zone}`, { cause: error });
  }
}

const dates: FunctionRow[] = Object.entries(PARTS).flatMap(([name, part]) => [
  method(name, [timestamp], int, (time: Timestamp) => BigInt(part(dateOf(time)))),
  method(name, [timestamp, string], int, (time: Timestamp, zone: string) => BigInt(part(inZone(time, zone)))),
]);

const spans: FunctionRow[] = (
  [
    ['getHours', 3600n * SECOND],
    ['getMinutes', 60n * SECOND],
    ['getSeconds', SECOND],
    ['getMilliseconds', MILLISECOND],
  ] as const
).map(([name, unit]) => method(name, [duration], int, ({ ns }: Duration) => ns / unit));

/** The overloads of timestamps and durations. */
export const timeFunctions: readonly FunctionRow[] = reading([...dates, ...spans]);
