/**
 * Shows the differences between two specs line by line, for the errors of kinds with an immutable spec. The differences have
 * the unified form with three lines of context. Both specs must have their fields in the same order (`internalForm`).
 */

import { escapedJson } from '../meta/field-error.ts';
import { internalForm } from './internal-form.ts';
import { matchingBlocks } from './matching-blocks.ts';

/** The number of equal lines that are shown before and after each difference. */
const CONTEXT = 3;
/** The maximum number of values of both specs together. */
const MAX_VALUES = 20_000;

interface Line {
  readonly sign: ' ' | '-' | '+';
  readonly text: string;
}

/** Returns the differences of two values of a built-in type, or a line that says that there are too many values. */
export function typeDiff(typeName: string, old: unknown, now: unknown): string {
  if (valuesIn(old) + valuesIn(now) > MAX_VALUES) return '\nThe values are too many to be compared\n';
  return specDiff(internalForm(typeName, old), internalForm(typeName, now));
}

function valuesIn(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value).reduce((sum: number, member) => sum + valuesIn(member), 1);
}

/** Returns a text that begins with a line break, or an empty text for equal values. */
export function specDiff(old: unknown, now: unknown): string {
  const lines = diffLines(linesOf(old), linesOf(now));
  if (lines.every(({ sign }) => sign === ' ')) return '';
  return `\n${hunksOf(lines).join('')}`;
}

function linesOf(value: unknown): string[] {
  return escapedJson(JSON.stringify(value ?? null, null, 1)).split('\n');
}

function diffLines(a: readonly string[], b: readonly string[]): Line[] {
  const lines: Line[] = [];
  const add = (sign: Line['sign'], texts: readonly string[]): void => {
    for (const text of texts) lines.push({ sign, text });
  };
  let [placeA, placeB] = [0, 0];
  for (const block of [...matchingBlocks(a, b), { a: a.length, b: b.length, size: 0 }]) {
    add('-', a.slice(placeA, block.a));
    add('+', b.slice(placeB, block.b));
    add(' ', a.slice(block.a, block.a + block.size));
    [placeA, placeB] = [block.a + block.size, block.b + block.size];
  }
  return lines;
}

function hunksOf(lines: readonly Line[]): string[] {
  const hunks: string[] = [];
  let [oldLine, newLine] = [1, 1];
  for (let index = 0; index < lines.length;) {
    let change = index;
    while (change < lines.length && lines[change]?.sign === ' ') change++;
    if (change === lines.length) break;
    const start = Math.max(index, change - CONTEXT);
    oldLine += start - index;
    newLine += start - index;
    const end = endOfHunk(lines, change);
    const part = lines.slice(start, end);
    const olds = part.filter(({ sign }) => sign !== '+').length;
    const news = part.filter(({ sign }) => sign !== '-').length;
    const body = part.map(({ sign, text }) => `${sign}${text}\n`).join('');
    hunks.push(`@@ -${rangeText(oldLine, olds)} +${rangeText(newLine, news)} @@\n${body}`);
    oldLine += olds;
    newLine += news;
    index = end;
  }
  return hunks;
}

/** Returns first line and number of lines, which is omitted if it is 1. A range without lines names the line before it. */
function rangeText(first: number, count: number): string {
  if (count === 1) return String(first);
  return `${count === 0 ? first - 1 : first},${count}`;
}

/** Returns the end of the hunk. Changes with at most twice the context between them share a hunk. */
function endOfHunk(lines: readonly Line[], change: number): number {
  let last = change;
  for (let place = change; place < lines.length && place - last <= 2 * CONTEXT + 1; place++)
    if (lines[place]?.sign !== ' ') last = place;
  return Math.min(lines.length, last + CONTEXT + 1);
}
