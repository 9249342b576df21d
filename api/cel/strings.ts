/** Implements the CEL string extension functions, including `format`. */
import { ESCAPES } from '../meta/quote.ts';
import { fn, type FunctionRow, method, type Spending } from './functions.ts';
import { MATCHING_STEPS, matchCost, patternOf, textCost } from './operators.ts';
import { readingCost } from './reading-cost.ts';
import { format } from './text-format.ts';
import { int, list, param, string } from './types.ts';
import { shownKey } from './value-access.ts';
import { adapt, CelError } from './values.ts';

const chars = (text: string): string[] => [...text];

/** Whether the code unit at this index is the second half of a character. */
const isSecondHalf = (text: string, at: number): boolean =>
  at > 0 && (text.charCodeAt(at) & 0xfc00) === 0xdc00 && (text.charCodeAt(at - 1) & 0xfc00) === 0xd800;

/** Returns the number of characters before a code unit. */
function charsBefore(text: string, end = text.length): number {
  let count = end;
  for (let at = 1; at < end; at += 1) if (isSecondHalf(text, at)) count -= 1;
  return count;
}

/** Returns the code unit at which a character begins. Throws for an index that the text does not have. */
function unitOf(text: string, index: bigint): number {
  if (index < 0n || index > text.length) throw new CelError(`index out of range: ${index}`);
  let left = Number(index);
  let at = 0;
  for (; left > 0 && at < text.length; left -= 1) at += isSecondHalf(text, at + 1) ? 2 : 1;
  if (left > 0) throw new CelError(`index out of range: ${index}`);
  return at;
}

function substring(text: string, from: bigint, to?: bigint): string {
  if (to !== undefined && from > to) throw new CelError(`invalid substring range. start: ${from}, end: ${to}`);
  const [start, end] = [unitOf(text, from), to === undefined ? text.length : unitOf(text, to)];
  if (start > end) {
    throw new CelError(`invalid substring range. start: ${from}, end: ${to ?? charsBefore(text)}`);
  }
  return text.slice(start, end);
}

function charAt(text: string, index: bigint): string {
  const code = text.codePointAt(unitOf(text, index));
  return code === undefined ? '' : String.fromCodePoint(code);
}

/** Whether the found part begins and ends between characters. */
const isWhole = (text: string, at: number, part: string): boolean =>
  !isSecondHalf(text, at) && !isSecondHalf(text, at + part.length);

function indexOf(text: string, part: string, from = 0n): bigint {
  if (part === '') return from;
  if (from >= charsBefore(text)) return -1n;
  let at = text.indexOf(part, unitOf(text, from));
  while (at >= 0 && !isWhole(text, at, part)) at = text.indexOf(part, at + 1);
  return at < 0 ? -1n : BigInt(charsBefore(text, at));
}

function lastIndexOf(text: string, part: string, from?: bigint): bigint {
  if (from !== undefined && part === '') return from;
  if (from !== undefined && from >= charsBefore(text)) return -1n;
  let at = text.lastIndexOf(part, from === undefined ? text.length : unitOf(text, from));
  while (at >= 0 && !isWhole(text, at, part)) at = at === 0 ? -1 : text.lastIndexOf(part, at - 1);
  return at < 0 ? -1n : BigInt(charsBefore(text, at));
}

function replace(text: string, from: string, to: string, limit: bigint, spending: Spending): string {
  const pieces = from === '' ? ['', ...chars(text), ''] : text.split(from);
  const most = pieces.length - 1;
  const count = limit < 0n || limit > most ? most : Number(limit);
  // The result may be much longer than the input, so its cost is charged before it is built.
  spending.spend(textCost(text.length + count * to.length));
  const head = pieces.slice(0, count + 1).join(to);
  return count === most ? head : `${head}${from}${pieces.slice(count + 1).join(from)}`;
}

function split(text: string, separator: string, limit = -1n): string[] {
  const parts = separator === '' ? chars(text) : text.split(separator);
  if (limit === 0n) return [];
  if (limit < 0n || parts.length <= limit) return parts;
  const head = Number(limit) - 1;
  return [...parts.slice(0, head), parts.slice(head).join(separator)];
}

function join(parts: readonly unknown[], separator: string, spending: Spending): string {
  let length = parts.length * separator.length;
  for (const part of parts) {
    if (typeof part !== 'string') throw new CelError(`join: invalid input: ${shownKey(adapt(part))}`);
    length += part.length;
  }
  spending.spend(textCost(length) + parts.length);
  return parts.join(separator);
}

const lowerAscii = (text: string): string => text.replace(/[A-Z]+/g, (part) => part.toLowerCase());
const upperAscii = (text: string): string => text.replace(/[a-z]+/g, (part) => part.toUpperCase());

/** Matches white space like Go's `unicode.IsSpace`. JavaScript's `\s` contains U+FEFF and lacks U+0085. */
const isSpace = (char: string): boolean => char === '\u0085' || (char !== '\ufeff' && /\s/.test(char));

function trim(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isSpace(text.charAt(start))) start += 1;
  while (end > start && isSpace(text.charAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

/** Returns a CEL string literal for the text. */
function quote(text: string): string {
  // oxlint-disable-next-line no-control-regex -- it finds the control characters that CEL escapes
  return `"${text.replaceAll(/[\u0007-\r\\"]/g, (char) => ESCAPES.get(char) ?? char)}"`;
}

const S = string;
const rows: readonly FunctionRow[] = [
  method('charAt', [S, int], S, charAt),
  method('indexOf', [S, S], int, (text: string, part: string) => indexOf(text, part)),
  method('indexOf', [S, S, int], int, (text: string, part: string, from: bigint) => indexOf(text, part, from)),
  method('lastIndexOf', [S, S], int, (text: string, part: string) => lastIndexOf(text, part)),
  method('lastIndexOf', [S, S, int], int, (text: string, part: string, from: bigint) => lastIndexOf(text, part, from)),
  method('lowerAscii', [S], S, lowerAscii),
  method('upperAscii', [S], S, upperAscii),
  method('replace', [S, S, S], S, (text: string, from: string, to: string, spending: Spending) =>
    replace(text, from, to, -1n, spending),
  ),
  method('replace', [S, S, S, int], S, (text: string, from: string, to: string, limit: bigint, spending: Spending) =>
    replace(text, from, to, limit, spending),
  ),
  method('split', [S, S], list(S), (text: string, separator: string) => split(text, separator)),
  method('split', [S, S, int], list(S), (text: string, separator: string, limit: bigint) =>
    split(text, separator, limit),
  ),
  method('substring', [S, int], S, (text: string, from: bigint) => substring(text, from)),
  method('substring', [S, int, int], S, (text: string, from: bigint, to: bigint) => substring(text, from, to)),
  method('trim', [S], S, trim),
  method('join', [list(S)], S, (parts: readonly unknown[], spending: Spending) => join(parts, '', spending)),
  method('join', [list(S), S], S, (parts: readonly unknown[], separator: string, spending: Spending) =>
    join(parts, separator, spending),
  ),
  fn('strings.quote', [S], S, quote),
  method('format', [S, list(param('A'))], S, (text: string, args: readonly unknown[], spending: Spending) => {
    // Entries of maps are read, sorted and joined.
    spending.spend(Math.ceil(text.length / 10) + 2 * readingCost(args));
    return format(text, args);
  }),
  method('find', [S, S], S, (text: string, pattern: string) => {
    const matcher = patternOf(pattern).matcher(text);
    return matcher.find() ? (matcher.group() ?? '') : '';
  }),
  method('findAll', [S, S], list(S), (text: string, pattern: string, spending: Spending) =>
    findAll(text, pattern, -1n, spending),
  ),
  method('findAll', [S, S, int], list(S), findAll),
];

const SEARCHES: ReadonlySet<string> = new Set(['indexOf', 'lastIndexOf']);
const PATTERNS: ReadonlySet<string> = new Set(['find', 'findAll']);

/** Charges a string function by the length of its text, and a search also by what it looks for. */
function charged(row: FunctionRow): FunctionRow {
  const { run } = row.overload;
  return {
    ...row,
    overload: {
      ...row.overload,
      run(args, spending) {
        const [first, second] = args;
        if (typeof first === 'string') {
          const sought = typeof second === 'string' ? second : '';
          if (PATTERNS.has(row.name)) spending.spend(MATCHING_STEPS + matchCost(first, sought));
          else spending.spend(textCost(first.length) * (SEARCHES.has(row.name) ? textCost(sought.length) || 1 : 1));
        }
        return run(args, spending);
      },
    },
  };
}

/** The overloads of the library `strings`. */
export const stringFunctions: readonly FunctionRow[] = rows.map(charged);

/** The cost of each match. A text may have as many matches as characters, and each takes as long as a match in a short text. */
const EACH_FOUND = 10;

function findAll(text: string, pattern: string, limit: bigint, spending: Spending): string[] {
  const found: string[] = [];
  const matcher = patternOf(pattern).matcher(text);
  while ((limit < 0n || BigInt(found.length) < limit) && matcher.find()) {
    spending.spend(EACH_FOUND);
    found.push(matcher.group() ?? '');
  }
  return found;
}
