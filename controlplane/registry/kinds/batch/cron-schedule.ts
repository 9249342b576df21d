/** Validates cron schedules and the names of time zones, with kube-apiserver's messages. */
import { quoteText } from '../../../../api/meta/quote.ts';
import { type FieldError, invalid, required } from '../../../../api/meta/field-error.ts';
import { INT64_MAX } from '../../../../api/meta/integers.ts';

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

interface Timed {
  readonly schedule?: string | undefined;
  readonly timeZone?: string | undefined;
}

/** Validates the schedule of a cron job. Only an object that already had a time zone in its schedule may keep one there. */
export function scheduleErrors(field: string, { schedule = '', timeZone }: Timed, old?: Timed): FieldError[] {
  if (schedule === '') return [required(field)];
  const fault = scheduleFault(schedule);
  const errors = fault === undefined ? [] : [invalid(field, schedule, fault)];
  if (!schedule.includes('TZ')) return errors;
  if (!(old?.schedule ?? '').includes('TZ'))
    errors.push(invalid(field, schedule, 'cannot use TZ or CRON_TZ in schedule, use timeZone field instead'));
  else if (timeZone !== undefined)
    errors.push(invalid(field, schedule, 'cannot use both timeZone field and TZ or CRON_TZ in schedule'));
  return errors;
}

const EVERY = '@every ';
const UNITS: ReadonlySet<string> = new Set(['ns', 'us', 'µs', 'μs', 'ms', 's', 'm', 'h']);

/** Returns the error of Go's `time.ParseDuration` for a text, or `undefined` if it is a duration. */
function durationFault(text: string): string | undefined {
  const quoted = quoteText(text);
  let remaining = text.replace(/^[+-]/, '');
  if (remaining === '0') return undefined;
  do {
    const number = /^(?:\d+\.?\d*|\.\d+)/.exec(remaining)?.[0];
    if (number === undefined) return `time: invalid duration ${quoted}`;
    const unit = /^[^.\d]*/.exec(remaining.slice(number.length))?.[0] ?? '';
    if (unit === '') return `time: missing unit in duration ${quoted}`;
    if (!UNITS.has(unit)) return `time: unknown unit ${quoteText(unit)} in duration ${quoted}`;
    remaining = remaining.slice(number.length + unit.length);
  } while (remaining !== '');
  return undefined;
}

const ZONE = /^(?:CRON_)?TZ=(\S*) */;

function scheduleFault(text: string): string | undefined {
  const zone = ZONE.exec(text)?.[1];
  if (zone !== undefined && zone !== '' && !isZone(zone))
    return `provided bad location ${zone}: unknown time zone ${zone}`;
  const schedule = text.replace(ZONE, '');
  if (schedule.startsWith('@')) {
    if (DESCRIPTORS.has(schedule)) return undefined;
    if (!schedule.startsWith(EVERY)) return `unrecognized descriptor: ${schedule}`;
    const fault = durationFault(schedule.slice(EVERY.length));
    return fault === undefined ? undefined : `failed to parse duration ${schedule}: ${fault}`;
  }
  const fields = schedule.split(/\s+/).filter((field) => field !== '');
  if (fields.length !== FIELDS.length)
    return `expected exactly 5 fields, found ${fields.length}: [${fields.join(' ')}]`;
  for (const [index, bounds] of FIELDS.entries()) {
    // Commas without a term between them are skipped.
    for (const term of (fields[index] ?? '').split(',').filter((one) => one !== '')) {
      const fault = rangeFault(term, bounds);
      if (fault !== undefined) return fault;
    }
  }
  return undefined;
}

function rangeFault(term: string, bounds: Bounds): string | undefined {
  const [range = '', step, ...more] = term.split('/');
  const [low = '', high, ...remaining] = range.split('-');
  let from = bounds.low;
  let to = bounds.high;
  if (low !== '*' && low !== '?') {
    const first = numberOf(low, bounds);
    if (typeof first === 'string') return first;
    if (remaining.length > 0) return `too many hyphens: ${term}`;
    const last = high === undefined ? (step === undefined ? first : bounds.high) : numberOf(high, bounds);
    if (typeof last === 'string') return last;
    from = first;
    to = last;
  }
  if (more.length > 0) return `too many slashes: ${term}`;
  const every = step === undefined ? 1 : numberOf(step, {});
  if (typeof every === 'string') return every;
  if (from < bounds.low) return `beginning of range (${from}) below minimum (${bounds.low}): ${term}`;
  if (to > bounds.high) return `end of range (${to}) above maximum (${bounds.high}): ${term}`;
  if (from > to) return `beginning of range (${from}) beyond end of range (${to}): ${term}`;
  return every === 0 ? `step of range should be a positive number: ${term}` : undefined;
}

/** Returns the number, or the error of Go for a text that is none. */
function numberOf(text: string, { names }: Pick<Bounds, 'names'>): number | string {
  const named = names?.[text.toLowerCase()];
  if (named !== undefined) return named;
  if (!/^\+?\d+$/.test(text)) return parseFault(text);
  return BigInt(text.replace('+', '')) > INT64_MAX ? parseFault(text, 'value out of range') : Number(text);
}

const parseFault = (text: string, why = 'invalid syntax'): string =>
  `failed to parse int from ${text}: strconv.Atoi: parsing ${quoteText(text)}: ${why}`;

/** Validates a time zone, which must be in the IANA database of the runtime. An absent zone is that of the server. */
export function timeZoneErrors(field: string, zone: string | undefined): FieldError[] {
  if (zone === undefined) return [];
  if (zone === '') return [invalid(field, zone, 'timeZone must be nil or non-empty string')];
  const isLocal = zone.toLowerCase() === 'local';
  const text = 'timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones';
  const errors = isLocal ? [invalid(field, zone, text)] : [];
  // Go knows the zone "Local", but only with a capital.
  return zone === 'Local' || isZone(zone) ? errors : [...errors, invalid(field, zone, `unknown time zone ${zone}`)];
}

/** Returns whether the time zone exists. Go finds zones by file names, so the case of the letters matters. */
function isZone(zone: string): boolean {
  if (!zone.split('/').every((part) => /^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$/.test(part) && !/^\.\.?$/.test(part)))
    return false;
  try {
    const { timeZone } = new Intl.DateTimeFormat('en', { timeZone: zone }).resolvedOptions();
    return timeZone.toLowerCase() !== zone.toLowerCase() || timeZone === zone;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return false;
  }
}
