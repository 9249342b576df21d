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

/** Compares by the longest common subsequence. Its quadratic cost is acceptable, because specs are short. */
function diffLines(a: readonly string[], b: readonly string[]): Line[] {
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
