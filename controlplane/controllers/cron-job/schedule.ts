/**
 * Parses cron schedules like kube-controller-manager: five fields with names, ranges, steps and lists, the `@daily` forms, and
 * a time zone. Pure.
 */
import { parseDuration } from '../../../api/component/duration.ts';

const MACROS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    '@yearly': '0 0 1 1 *',
    '@annually': '0 0 1 1 *',
    '@monthly': '0 0 1 * *',
    '@weekly': '0 0 * * 0',
    '@daily': '0 0 * * *',
    '@midnight': '0 0 * * *',
    '@hourly': '0 * * * *',
  }),
);
const EVERY = '@every ';
const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const DAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
/** A schedule without a time in so many years has none, as in the cron library of Kubernetes. */
const SEARCH_YEARS = 5;
/** Two days before the end of the shortest month. */
const SHORT_MONTH_DAYS = 26;

/** A schedule or time zone that cannot be parsed. */
export class ScheduleError extends Error {
  override readonly name = 'ScheduleError';
}

/** A parsed schedule. Times are in milliseconds since 1970. */
export interface Schedule {
  /** Returns the first time after `afterMs`; `undefined` if there is none within five years. */
  next(afterMs: number): number | undefined;
}

/** The number of missed times after which no more are counted. */
export const MAX_MISSED = 100;

/**
 * Returns the newest time after `sinceMs` that is due, and how many there are, as far as they are counted. If `@every` has
 * missed more than are counted, the time is one of the last.
 */
export function dueTime(
  schedule: Schedule,
  { sinceMs, nowMs }: { readonly sinceMs: number; readonly nowMs: number },
): { readonly due: number | undefined; readonly missed: number } {
  let due: number | undefined;
  let missed = 0;
  let next = schedule.next(sinceMs);
  for (; next !== undefined && next <= nowMs && missed <= MAX_MISSED; next = schedule.next(next)) {
    due = next;
    missed++;
  }
  if (due === undefined || next === undefined || next > nowMs) return { due, missed };
  // A due time follows every minute before the newest one, and none after it, so a binary search finds it. `@every` has no
  // fixed times, so the search finds one of the last.
  let [after, beyond] = [due, nowMs];
  while (beyond - after > MINUTE_MS) {
    const middle = (after + beyond) / 2;
    const found = schedule.next(middle);
    if (found === undefined || found > nowMs) beyond = middle;
    else [due, after] = [found, middle];
  }
  return { due, missed };
}

/**
 * Parses five fields, a macro such as `@daily`, or `@every` with a duration, as robfig/cron does. Throws `ScheduleError`, or
 * `RangeError` for an unknown time zone, which `@every` does not read.
 */
export function parseSchedule(text: string, timeZone = 'UTC'): Schedule {
  if (text.startsWith(EVERY)) return everySchedule(text.slice(EVERY.length));
  const fields = (MACROS.get(text) ?? text).trim().split(/\s+/);
  if (fields.length !== 5)
    throw new ScheduleError(`expected exactly 5 fields, found ${fields.length}: [${fields.join(' ')}]`);
  const [minute = '', hour = '', dayOfMonth = '', month = '', dayOfWeek = ''] = fields;
  const sets = {
    minutes: parseField(minute, 0, 59),
    hours: parseField(hour, 0, 23),
    daysOfMonth: parseField(dayOfMonth, 1, 31),
    months: parseField(month, 1, 12, MONTHS),
    daysOfWeek: parseField(dayOfWeek, 0, 6, DAYS),
  };
  const anyDay = isStar(dayOfMonth) || isStar(dayOfWeek);
  const parts = zoneReader(timeZone);
  const dayMatches = (day: number, weekday: number): boolean => {
    const ofMonth = sets.daysOfMonth.has(day);
    const ofWeek = sets.daysOfWeek.has(weekday);
    return anyDay ? ofMonth && ofWeek : ofMonth || ofWeek;
  };
  return {
    next(afterMs) {
      let at = Math.floor(afterMs / MINUTE_MS) * MINUTE_MS + MINUTE_MS;
      const end = afterMs + SEARCH_YEARS * 366 * DAY_MS;
      while (at < end) {
        const { month: monthOf, day, weekday, hour: hourOf, minute: minuteOf } = parts(at);
        // No local time can bring this day into the next month.
        if (!sets.months.has(monthOf) && day < SHORT_MONTH_DAYS) {
          at += (SHORT_MONTH_DAYS - day) * DAY_MS;
          continue;
        }
        if (!sets.months.has(monthOf) || !dayMatches(day, weekday)) {
          // Advances to the last hour of the day, which daylight saving time may have shifted, and then by quarters of an hour.
          at += (hourOf < 23 ? (23 - hourOf) * 60 - minuteOf : 15 - (minuteOf % 15)) * MINUTE_MS;
          continue;
        }
        if (!sets.hours.has(hourOf)) at += (60 - minuteOf) * MINUTE_MS;
        else if (sets.minutes.has(minuteOf)) return at;
        else at += MINUTE_MS;
      }
      return undefined;
    },
  };
}

/**
 * Whether one of the two fields of days (of the month, of the week) restricts no day, so that only the other field decides. A
 * star with a step beyond 1 restricts the days.
 */
const isStar = (field: string): boolean => field.split(',').some((part) => /^[*?][^/]*(?:\/\+?0*1)?$/.test(part));

function everySchedule(duration: string): Schedule {
  const ms = parseDuration(duration);
  if (ms === undefined) throw new ScheduleError(`failed to parse duration ${EVERY}${duration}`);
  const stepMs = Math.max(1, Math.floor(ms / 1000)) * 1000;
  return { next: (afterMs) => Math.floor(afterMs / 1000) * 1000 + stepMs };
}

/**
 * Returns the values of a field. Commas without a term between them are skipped, and `*` with a range is every value. Throws
 * `ScheduleError`.
 */
function parseField(field: string, low: number, high: number, names: readonly string[] = []): ReadonlySet<number> {
  const values = new Set<number>();
  for (const part of field.split(',').filter((one) => one !== '')) {
    const [range = '', step, more] = part.split('/');
    if (more !== undefined) throw new ScheduleError(`too many slashes: ${part}`);
    const [from = '', to, excess] = range.split('-');
    const star = from === '*' || from === '?';
    if (excess !== undefined && !star) throw new ScheduleError(`too many hyphens: ${part}`);
    const start = star ? low : valueOf(from, low, names);
    const stepSize = step === undefined ? 1 : valueOf(step, low, []);
    if (stepSize === 0) throw new ScheduleError(`step of range should be a positive number: ${part}`);
    const end = star ? high : to !== undefined ? valueOf(to, low, names) : step === undefined ? start : high;
    if (start < low) throw new ScheduleError(`beginning of range (${start}) below minimum (${low}): ${part}`);
    if (end > high) throw new ScheduleError(`end of range (${end}) above maximum (${high}): ${part}`);
    if (start > end) throw new ScheduleError(`beginning of range (${start}) beyond end of range (${end}): ${part}`);
    for (let value = start; value <= end; value += stepSize) values.add(value);
  }
  return values;
}

function valueOf(text: string, low: number, names: readonly string[]): number {
  const named = names.indexOf(text.toLowerCase());
  if (named >= 0) return named + low;
  if (!/^\+?\d+$/.test(text)) throw new ScheduleError(`failed to parse int from ${text}`);
  return Number(text);
}

interface LocalTime {
  readonly month: number;
  readonly day: number;
  readonly weekday: number;
  readonly hour: number;
  readonly minute: number;
}

function zoneReader(timeZone: string): (atMs: number) => LocalTime {
  if (timeZone === 'UTC' || timeZone === 'Etc/UTC') {
    return (atMs) => {
      const date = new Date(atMs);
      return {
        month: date.getUTCMonth() + 1,
        day: date.getUTCDate(),
        weekday: date.getUTCDay(),
        hour: date.getUTCHours(),
        minute: date.getUTCMinutes(),
      };
    };
  }
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    month: 'numeric',
    day: 'numeric',
    weekday: 'short',
    hour: 'numeric',
    minute: 'numeric',
  });
  return (atMs) => {
    const parts = Object.fromEntries(format.formatToParts(atMs).map(({ type, value }) => [type, value]));
    return {
      month: Number(parts['month']),
      day: Number(parts['day']),
      weekday: DAYS.indexOf((parts['weekday'] ?? '').toLowerCase()),
      hour: Number(parts['hour']),
      minute: Number(parts['minute']),
    };
  };
}
