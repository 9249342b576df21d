/**
 * Shows the differences between two specs line by line, for the errors of kinds with an immutable spec. The differences have
 * the unified form with three lines of context. Both specs must have their fields in the same order (`internalForm`).
 */

const CONTEXT = 3;

interface Line {
  readonly sign: ' ' | '-' | '+';
  readonly text: string;
}

/** Returns a text that begins with a line break, or an empty text for equal values. */
export function specDiff(old: unknown, now: unknown): string {
  const lines = diffLines(linesOf(old), linesOf(now));
  if (lines.every(({ sign }) => sign === ' ')) return '';
  return `\n${hunksOf(lines).join('')}`;
}

function linesOf(value: unknown): string[] {
  return JSON.stringify(value ?? null, null, 1).split('\n');
}

/** The largest product of two line counts that are compared exactly. Longer texts are shown as replaced. */
const MAX_COMPARISONS = 4_000_000;

/** Compares what is between the first and the last difference. */
function diffLines(a: readonly string[], b: readonly string[]): Line[] {
  const shorter = Math.min(a.length, b.length);
  let start = 0;
  while (start < shorter && a[start] === b[start]) start++;
  let tail = 0;
  while (tail < shorter - start && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const same = (text: string): Line => ({ sign: ' ', text });
  const [from, to] = [a.slice(start, a.length - tail), b.slice(start, b.length - tail)];
  return [...a.slice(0, start).map(same), ...changedLines(from, to), ...a.slice(a.length - tail).map(same)];
}

/** Compares by the longest common subsequence, whose cost is quadratic. */
function changedLines(a: readonly string[], b: readonly string[]): Line[] {
  if (a.length * b.length > MAX_COMPARISONS) {
    const line =
      (sign: Line['sign']) =>
      (text: string): Line => ({ sign, text });
    return [...a.map(line('-')), ...b.map(line('+'))];
  }
  const width = b.length + 1;
  const lengths = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number): number => lengths[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      lengths[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ sign: ' ', text: a[i] ?? '' });
      i++;
      j++;
    } else if (i < a.length && (j >= b.length || at(i + 1, j) >= at(i, j + 1)))
      lines.push({ sign: '-', text: a[i++] ?? '' });
    else lines.push({ sign: '+', text: b[j++] ?? '' });
  }
  return lines;
}

function hunksOf(lines: readonly Line[]): string[] {
  const hunks: string[] = [];
  let [oldLine, newLine] = [1, 1];
  for (let index = 0; index < lines.length;) {
    const change = lines.findIndex(({ sign }, place) => place >= index && sign !== ' ');
    if (change < 0) break;
    const start = Math.max(index, change - CONTEXT);
    oldLine += start - index;
    newLine += start - index;
    const end = endOfHunk(lines, change);
    const part = lines.slice(start, end);
    const olds = part.filter(({ sign }) => sign !== '+').length;
    const news = part.filter(({ sign }) => sign !== '-').length;
    const body = part.map(({ sign, text }) => `${sign}${text}\n`).join('');
    hunks.push(`@@ -${oldLine},${olds} +${newLine},${news} @@\n${body}`);
    oldLine += olds;
    newLine += news;
    index = end;
  }
  return hunks;
}

/** Returns the end of the hunk. Changes that are closer to each other than twice the context share a hunk. */
function endOfHunk(lines: readonly Line[], change: number): number {
  let last = change;
  for (let place = change; place < lines.length && place - last <= 2 * CONTEXT; place++)
    if (lines[place]?.sign !== ' ') last = place;
  return Math.min(lines.length, last + CONTEXT + 1);
}
