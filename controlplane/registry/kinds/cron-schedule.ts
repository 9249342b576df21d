/** Whether a text is a cron schedule, and a name a time zone; faults in the words of the reference. */
import type { FieldError } from '../../../api/meta/field-error.ts';
import { invalid, required } from './field-rules.ts';

interface Bounds {
  readonly low: number;
  readonly high: number;
  readonly names?: Readonly<Record<string, number>>;
}

const MONTHS = Object.fromEntries(
  'jan feb mar apr may jun jul aug sep oct nov dec'.split(' ').map((name, index) => [name, index + 1]),
);
const DAYS = Object.fromEntries('sun mon tue wed thu fri sat'.split(' ').map((name, index) => [name, index]));
const FIELDS: readonly Bounds[] = [
  { low: 0, high: 59 },
  { low: 0, high: 23 },
  { low: 1, high: 31 },
  { low: 1, high: 12, names: MONTHS },
  { low: 0, high: 6, names: DAYS },
];
const DESCRIPTORS: ReadonlySet<string> = new Set([
  '@yearly',
  '@annually',
  '@monthly',
  '@weekly',
  '@daily',
  '@midnight',
  '@hourly',
]);

export function scheduleErrors(field: string, schedule: string): FieldError[] {
  if (schedule === '') return [required(field)];
  if (schedule.includes('TZ'))
    return [invalid(field, schedule, 'cannot use TZ or CRON_TZ in schedule, use timeZone field instead')];
  const fault = scheduleFault(schedule);
  return fault === undefined ? [] : [invalid(field, schedule, fault)];
}

function scheduleFault(schedule: string): string | undefined {
  if (schedule.startsWith('@')) {
    if (DESCRIPTORS.has(schedule) || /^@every (\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$/.test(schedule)) return undefined;
    return `unrecognized descriptor: ${schedule}`;
  }
  const fields = schedule.trim().split(/\s+/);
  if (fields.length !== FIELDS.length)
    return `expected exactly 5 fields, found ${fields.length}: [${fields.join(' ')}]`;
  for (const [index, bounds] of FIELDS.entries()) {
    for (const term of (fields[index] ?? '').split(',')) {
      const fault = rangeFault(term, bounds);
      if (fault !== undefined) return fault;
    }
  }
  return undefined;
}

function rangeFault(term: string, bounds: Bounds): string | undefined {
  const [range = '', step, ...more] = term.split('/');
  if (more.length > 0) return `too many slashes: ${term}`;
  const [low = '', high, ...rest] = range.split('-');
  if (rest.length > 0) return `too many hyphens: ${term}`;
  let from = bounds.low;
  let to = bounds.high;
  if (low !== '*' && low !== '?') {
    const first = numberOf(low, bounds);
    if (first === undefined) return parseFault(low);
    from = first;
    to = first;
    if (high !== undefined) {
      const last = numberOf(high, bounds);
      if (last === undefined) return parseFault(high);
      to = last;
    } else if (step !== undefined) to = bounds.high;
  }
  if (step !== undefined) {
    if (!/^\d+$/.test(step)) return parseFault(step);
    if (Number(step) === 0) return `step of range should be a positive number: ${term}`;
  }
  if (from < bounds.low) return `beginning of range (${from}) below minimum (${bounds.low}): ${term}`;
  if (to > bounds.high) return `end of range (${to}) above maximum (${bounds.high}): ${term}`;
  return from > to ? `beginning of range (${from}) beyond end of range (${to}): ${term}` : undefined;
}

function numberOf(text: string, bounds: Bounds): number | undefined {
  const named = bounds.names?.[text.toLowerCase()];
  if (named !== undefined) return named;
  return /^\d+$/.test(text) ? Number(text) : undefined;
}

const parseFault = (text: string): string =>
  `failed to parse int from ${text}: strconv.Atoi: parsing ${JSON.stringify(text)}: invalid syntax`;

export function timeZoneErrors(field: string, zone: string | undefined): FieldError[] {
  if (zone === undefined) return [];
  if (zone === '') return [invalid(field, zone, 'timeZone must be nil or non-empty string')];
  if (zone.toLowerCase() === 'local')
    return [
      invalid(field, zone, 'timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones'),
    ];
  try {
    new Intl.DateTimeFormat('en', { timeZone: zone });
    return [];
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return [invalid(field, zone, `unknown time zone ${zone}`)];
  }
}
