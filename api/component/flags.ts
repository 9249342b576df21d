/**
 * Defines the typed flag table.
 *
 * The syntax is that of Kubernetes' programs: `--flag=value` and `--flag value`, booleans without a value, `_` instead of `-`
 * in names, short names (`-v 4`, `-v=4`, `-v4`), and `--` to end the flags. The last value of a repeated flag counts, and lists
 * and maps collect all values.
 */
import { quoteText } from '../meta/quote.ts';
import { formatDuration, parseDuration } from './duration.ts';
import { PlainError } from './plain-error.ts';

/** The type of the value of each type of flag. */
export interface FlagTypes {
  string: string;
  boolean: boolean;
  integer: number;
  number: number;
  /** A duration in milliseconds. */
  duration: number;
  /** A list that is comma-separated, repeated, or both. */
  list: readonly string[];
  /** A list that is repeated. Commas belong to the value. */
  array: readonly string[];
  /** A map as `a=1,b=2`, or repeated. */
  map: Readonly<Record<string, string>>;
}

/** The type of a flag's value. */
export type FlagType = keyof FlagTypes;

/** A row of the table. */
export interface Flag<T extends FlagType = FlagType> {
  /** The name without dashes. */
  readonly name: string;
  readonly type: T;
  readonly default: FlagTypes[T];
  /** The help text for `--help` and the docs, of one or two sentences. */
  readonly help: string;
  /** The heading in `--help`. */
  readonly group: string;
  readonly short?: string;
  /** The name of the value in `--help`. The default depends on the type. */
  readonly placeholder?: string;
  /** The advice to users of a deprecated flag: what to use instead. It is printed once as a warning if the flag is set. */
  readonly deprecated?: string;
  /** The reason why the flag is accepted but has no effect here. It is printed once as a warning if the flag is set. */
  readonly noEffect?: string;
  /** The value if the flag is given without one. The flag then takes a value only after `=`. */
  readonly bare?: string;
  /** The allowed values of a string, or of each item of a list. */
  readonly choices?: readonly string[];
  /** Validates a value. Returns the reason to refuse it, or `undefined`. */
  readonly check?: (value: FlagTypes[T]) => string | undefined;
  readonly hidden?: boolean;
}

/** Returns a row of the table. The keys of the table are the names of the options in the program. */
export function flag<T extends FlagType>(row: Flag<T>): Flag<T> {
  return row;
}

/** Rows by the keys that the code uses. */
export type FlagTable = Readonly<Record<string, AnyFlag>>;
/** A row of any type. */
export type AnyFlag = { readonly [T in FlagType]: Flag<T> }[FlagType];
/** The values by key, with the types of the rows. */
export type FlagValues<Table> = {
  readonly [Key in keyof Table]: Table[Key] extends { readonly type: infer T extends FlagType } ? FlagTypes[T] : never;
};

/** The result of a parse. */
export interface ParsedFlags<Table> {
  readonly values: FlagValues<Table>;
  /** The keys of the flags that the command line sets. */
  readonly given: ReadonlySet<keyof Table>;
  /** The words that are not flags. */
  readonly arguments: readonly string[];
  readonly warnings: readonly string[];
}

/** Returns the rows of a table, or the values of its flags, that another command uses as well. */
export function pickKeys<T extends object, K extends keyof T>(record: T, keys: readonly K[]): Pick<T, K> {
  return Object.fromEntries(keys.map((key) => [key, record[key]])) as Pick<T, K>;
}

/** A usage error, whose message is one line. The command exits with code 2. */
export class UsageError extends PlainError {
  override readonly name = 'UsageError';
}

/** Parses a command line by the table. Throws `UsageError`. */
export function parseFlags<const Table extends FlagTable>(table: Table, argv: readonly string[]): ParsedFlags<Table> {
  const byName = indexByName(table);
  const values: Record<string, unknown> = {};
  for (const [key, row] of Object.entries(table)) values[key] = row.default;
  const given = new Set<string>();
  const operands: string[] = [];
  const warnings: string[] = [];
  for (let index = 0; index < argv.length; index++) {
    const word = argv[index] ?? '';
    if (word === '--') {
      operands.push(...argv.slice(index + 1));
      break;
    }
    if (!word.startsWith('-') || word === '-') {
      operands.push(word);
      continue;
    }
    const { name, inline } = splitWord(word, byName);
    const entry = byName.get(name);
    if (entry === undefined) throw new UsageError(unknownFlag(word.split('=')[0] ?? word, [...byName.keys()]));
    const [key, row] = entry;
    let text = inline;
    if (text === undefined) {
      if (row.bare !== undefined || row.type === 'boolean') text = row.bare ?? 'true';
      else {
        index += 1;
        text = argv[index];
        if (text === undefined) throw new UsageError(`flag needs an argument: ${word}`);
      }
    }
    values[key] = takeValue(row, text, given.has(key) ? values[key] : undefined);
    if (!given.has(key)) warnings.push(...warningsOf(row));
    given.add(key);
  }
  return {
    values: values as FlagValues<Table>,
    given: given as ReadonlySet<keyof Table>,
    arguments: operands,
    warnings,
  };
}

function indexByName(table: FlagTable): Map<string, readonly [string, AnyFlag]> {
  const byName = new Map<string, readonly [string, AnyFlag]>();
  for (const [key, row] of Object.entries(table)) {
    byName.set(row.name, [key, row]);
    if (row.short !== undefined) byName.set(row.short, [key, row]);
  }
  return byName;
}

function splitWord(word: string, rows: ReadonlyMap<string, unknown>): { name: string; inline: string | undefined } {
  const bare = word.replace(/^--?/, '');
  const equals = bare.indexOf('=');
  const name = (equals < 0 ? bare : bare.slice(0, equals)).replaceAll('_', '-');
  // A short name may be followed directly by its value: `-v4`.
  if (!rows.has(name) && /^-\w\d/.test(word) && rows.has(word.charAt(1)))
    return { name: word.charAt(1), inline: word.slice(2) };
  return { name, inline: equals < 0 ? undefined : bare.slice(equals + 1) };
}

function warningsOf(row: AnyFlag): string[] {
  const warnings: string[] = [];
  if (row.deprecated !== undefined) warnings.push(`Flag --${row.name} has been deprecated, ${row.deprecated}`);
  if (row.noEffect !== undefined) warnings.push(`Flag --${row.name} has no effect: ${row.noEffect}`);
  return warnings;
}

/**
 * Parses one value of a flag. `before` is the value that the same command line set already, for lists and maps. Throws
 * `UsageError`.
 */
function takeValue(row: AnyFlag, text: string, before?: unknown): FlagTypes[FlagType] {
  const fail = (why: string): never => {
    throw new UsageError(`invalid argument ${quoteText(text)} for "--${row.name}" flag: ${why}`);
  };
  const value = convert(row.type, text, before, fail);
  const reason = valueProblem(row, value);
  if (reason !== undefined) fail(reason);
  return value;
}

/** Returns why the row refuses a value of its type: by its choices, or else by its check. `undefined` if it is valid. */
export function valueProblem(row: AnyFlag, value: FlagTypes[FlagType]): string | undefined {
  const items = Array.isArray(value) ? (value as readonly string[]) : [String(value)];
  const wrong = row.choices === undefined ? undefined : items.find((item) => row.choices?.includes(item) !== true);
  if (wrong !== undefined) {
    const subject = Array.isArray(value) ? `${quoteText(wrong)} ` : '';
    return `${subject}must be one of ${shownChoices(row).map(quoteText).join(', ')}`;
  }
  return (row.check as ((value: unknown) => string | undefined) | undefined)?.(value);
}

/** Returns the choices that help and completion show: all but the empty text, which stands for no choice. */
export const shownChoices = (row: AnyFlag): readonly string[] => (row.choices ?? []).filter((choice) => choice !== '');

function convert(type: FlagType, text: string, before: unknown, fail: (why: string) => never): FlagTypes[FlagType] {
  switch (type) {
    case 'string':
      return text;
    case 'boolean':
      if (/^(1|t|T|true|TRUE|True)$/.test(text)) return true;
      if (/^(0|f|F|false|FALSE|False)$/.test(text)) return false;
      return fail('must be true or false');
    case 'integer':
      return integerOf(text) ?? fail('must be a whole number');
    case 'number':
      return text !== '' && Number.isFinite(Number(text)) ? Number(text) : fail('must be a number');
    case 'duration':
      return parseDuration(text) ?? fail('must be a duration such as 30s, 5m or 1h30m');
    case 'list':
      return [...((before as readonly string[] | undefined) ?? []), ...(text === '' ? [] : text.split(','))];
    case 'array':
      return [...((before as readonly string[] | undefined) ?? []), text];
    case 'map':
      return { ...(before as Record<string, string> | undefined), ...parsePairs(text, fail) };
    default:
      return type satisfies never;
  }
}

/** Parses a safe integer with Go's prefixes: `0x10`, `0b11`, `0o17` and `017`. Returns `undefined` for other texts. */
function integerOf(text: string): number | undefined {
  const [, sign = '', digits = ''] = /^([+-]?)(0x[0-9a-f]+|0b[01]+|0o?[0-7]+|0|[1-9]\d*)$/i.exec(text) ?? [];
  if (digits === '') return undefined;
  const value = Number(digits.replace(/^0(?=[0-7])/, '0o')) * (sign === '-' ? -1 : 1);
  return Number.isSafeInteger(value) ? value : undefined;
}

function parsePairs(text: string, fail: (why: string) => never): Record<string, string> {
  const pairs: Record<string, string> = {};
  for (const pair of text.split(',').filter((part) => part.trim() !== '')) {
    const at = pair.search(/[=<]/);
    const key = pair.slice(0, Math.max(0, at)).trim();
    if (key === '') fail(`${quoteText(pair)} must be formatted as key=value`);
    pairs[key] = pair.slice(pair.charAt(at) === '<' ? at : at + 1);
  }
  return pairs;
}

function unknownFlag(word: string, names: readonly string[]): string {
  const near = nearest(word.replace(/^-+/, ''), names);
  return `unknown flag: ${word}${near === undefined ? '' : ` (did you mean --${near}?)`}`;
}

/** Returns the most similar candidate, or `undefined` if none is similar. */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of candidates) {
    const distance = editDistance(word, candidate, bestDistance);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best ?? candidates.find((candidate) => word.length > 3 && candidate.includes(word));
}

/** Computes the Levenshtein distance with transpositions. If the lengths differ by `limit` or more, returns `limit`. */
function editDistance(left: string, right: string, limit: number): number {
  if (Math.abs(left.length - right.length) >= limit) return limit;
  let beforePrevious: number[] = [];
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let row = 1; row <= left.length; row++) {
    const current = [row];
    for (let column = 1; column <= right.length; column++) {
      const same = left[row - 1] === right[column - 1];
      let cost = Math.min(
        (previous[column] ?? 0) + 1,
        (current[column - 1] ?? 0) + 1,
        (previous[column - 1] ?? 0) + (same ? 0 : 1),
      );
      if (row > 1 && column > 1 && left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1]) {
        cost = Math.min(cost, (beforePrevious[column - 2] ?? 0) + 1);
      }
      current.push(cost);
    }
    beforePrevious = previous;
    previous = current;
  }
  return previous[right.length] ?? limit;
}

/** Formats the default value as it would be typed. It is '' if the default is empty. */
export function formatDefault(row: AnyFlag): string {
  switch (row.type) {
    case 'duration':
      return formatDuration(row.default);
    case 'list':
    case 'array':
      return row.default.join(',');
    case 'map':
      return Object.entries(row.default)
        .map(([key, value]) => (value.startsWith('<') ? `${key}${value}` : `${key}=${value}`))
        .join(',');
    default:
      return String(row.default);
  }
}

const PLACEHOLDERS: Readonly<Record<FlagType, string>> = {
  string: 'string',
  boolean: '',
  integer: 'int',
  number: 'float',
  duration: 'duration',
  list: 'strings',
  array: 'string',
  map: 'key=value,…',
};

/** Formats the flags by group for `--help`, wrapped at `width` columns. */
export function formatFlags(table: FlagTable, width = 80): string {
  const groups = new Map<string, AnyFlag[]>();
  for (const row of Object.values(table)) {
    if (row.hidden === true) continue;
    const rows = groups.get(row.group) ?? [];
    rows.push(row);
    groups.set(row.group, rows);
  }
  let out = '';
  for (const [group, rows] of groups) {
    out += `\n${group}:\n`;
    for (const row of rows.toSorted((left, right) => (left.name < right.name ? -1 : 1))) out += formatRow(row, width);
  }
  return out;
}

function formatRow(row: AnyFlag, width: number): string {
  const placeholder = row.placeholder ?? PLACEHOLDERS[row.type];
  const names = row.short === undefined ? `      --${row.name}` : `  -${row.short}, --${row.name}`;
  const shown = formatDefault(row);
  const isEmpty = shown === '' || (row.type === 'boolean' && !row.default) || shown === '0' || shown === '0s';
  const text = [
    row.help,
    row.choices === undefined ? '' : `${row.type === 'list' ? 'Any' : 'One'} of: ${shownChoices(row).join(', ')}.`,
    isEmpty ? '' : `(default ${row.type === 'string' ? quoteText(shown) : shown})`,
    row.deprecated === undefined ? '' : `(DEPRECATED: ${row.deprecated})`,
    row.noEffect === undefined ? '' : `(no effect: ${row.noEffect})`,
  ]
    .filter((part) => part !== '')
    .join(' ');
  return `${names}${placeholder === '' ? '' : ` ${placeholder}`}\n${wrap(text, width - 10, ' '.repeat(10))}\n`;
}

/** Wraps words into lines of at most `width` columns, unless a word is longer, each with `indent` before it. */
export function wrap(text: string, width: number, indent: string): string {
  const lines: string[] = [];
  let line = '';
  // A word that is longer than a line, such as a long list, may be broken after its commas.
  const words = text.split(/\s+/).flatMap((word) => (word.length > width ? word.split(/(?<=,)/) : [word]));
  for (const word of words) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(indent + line);
      line = word;
    } else {
      line = line === '' ? word : `${line} ${word}`;
    }
  }
  if (line !== '') lines.push(indent + line);
  return lines.join('\n');
}
