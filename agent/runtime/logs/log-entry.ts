/**
 * Parses the entries of container logs, in the format of CRI or in that of Docker's json-file driver. The first entry that is
 * read decides for the whole log, as in the kubelet (`k8s.io/cri-client/pkg/logs`). Pure.
 */
import { quote } from '../../../api/meta/field-error.ts';

/** The bytes of a space and of a line end. */
const SPACE = 32;
const NEWLINE = 10;

interface LogEntry {
  /** RFC 3339 with all nine digits after the second; `Z` for every zone without an offset. */
  readonly time: string;
  readonly stream: string;
  /** The text of the line. It has no newline if it is a part of a line. */
  readonly text: Buffer;
}

/** Returns `undefined` for an entry in another format. `line` has its newline, unless it is still being written. */
export type LogParser = (line: Buffer) => LogEntry | undefined;

/** The error of a log that cannot be shown, with the kubelet's message. */
export class LogError extends Error {}

/** Returns the parser of the entry's format. Throws a `LogError` for an unknown format. */
export function parserOf(line: Buffer): LogParser {
  const found = [parseCri, parseJson].find((parse) => parse(line) !== undefined);
  if (found !== undefined) return found;
  throw new LogError(`failed to get parse function: unsupported log format: ${quote(line.toString())}`);
}

/** Returns the time in UTC without the zone, so that texts compare like times. */
export function utcOf({ time }: LogEntry): string {
  if (time.endsWith('Z')) return time.slice(0, -1);
  return `${new Date(time).toISOString().slice(0, 19)}${time.slice(19, 29)}`;
}

/**
 * Parses `<time> <stream> <tags> <text>`, whose first tag is `P` for a part of a line and `F` for its end. Returns `undefined`
 * for other lines.
 */
function parseCri(line: Buffer): LogEntry | undefined {
  const first = line.indexOf(SPACE);
  const second = first === -1 ? -1 : line.indexOf(SPACE, first + 1);
  const third = second === -1 ? -1 : line.indexOf(SPACE, second + 1);
  if (third === -1) return undefined;
  const time = wholeTime(line.toString('latin1', 0, first));
  const stream = line.toString('latin1', first + 1, second);
  if (time === undefined || (stream !== 'stdout' && stream !== 'stderr')) return undefined;
  const [tag] = line.toString('latin1', second + 1, third).split(':');
  const end = tag === 'P' && line.at(-1) === NEWLINE ? line.length - 1 : line.length;
  return { time, stream, text: line.subarray(third + 1, end) };
}

/** Parses `{"log":"<text>","stream":"stdout","time":"<time>"}`. Returns `undefined` for other lines. */
function parseJson(line: Buffer): LogEntry | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line.toString());
  } catch {
    // The line does not have the format of Docker.
    return undefined;
  }
  if (typeof value !== 'object' || Array.isArray(value)) return undefined;
  const { log = '', stream = '', time = '0001-01-01T00:00:00Z' } = (value ?? {}) as Record<string, unknown>;
  if (typeof log !== 'string' || typeof stream !== 'string' || typeof time !== 'string') return undefined;
  const whole = wholeTime(time);
  return whole === undefined ? undefined : { time: whole, stream, text: Buffer.from(log) };
}

/** Completes the fraction of an RFC 3339 time. Returns `undefined` for another text. */
function wholeTime(time: string): string | undefined {
  const [, seconds, fraction = '', zone] =
    /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)$/.exec(time) ?? [];
  if (seconds === undefined || zone === undefined || Number.isNaN(Date.parse(`${seconds}${zone}`))) return undefined;
  return `${seconds}.${fraction.slice(0, 9).padEnd(9, '0')}${/^[+-]00:00$/.test(zone) ? 'Z' : zone}`;
}
