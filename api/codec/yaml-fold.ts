/**
 * Breaks texts of YAML where go-yaml breaks them: a line ends at the first single space after column 80, and in double quotes
 * also at the first of several. Parsers read the break as that space.
 */

const BEST_WIDTH = 80;

/** Returns the number of characters after the last line break. */
const columnOf = (text: string): number => [...text.slice(text.lastIndexOf('\n') + 1)].length;

/**
 * Returns a scalar with line breaks. `text` is a plain or a quoted scalar of one line, `before` is what stands before it on
 * that line, and `indent` is the indentation of the lines after the first one.
 */
export function folded(text: string, { before, indent }: { readonly before: string; readonly indent: number }): string {
  if (before.length + text.length <= BEST_WIDTH) return text;
  const isDouble = text.startsWith('"');
  const isQuoted = isDouble || text.startsWith("'");
  // A space next to a quote is never a break.
  const [first, last] = isQuoted ? [2, text.length - 3] : [1, text.length - 2];
  const pad = `\n${' '.repeat(indent)}`;
  const parts: string[] = [];
  let from = 0;
  let column = columnOf(before);
  for (let at = text.indexOf(' ', first); at !== -1 && at <= last; at = text.indexOf(' ', at + 1)) {
    const isSeveral = text[at + 1] === ' ';
    if (column + at - from <= BEST_WIDTH || text[at - 1] === ' ' || (isSeveral && !isDouble)) continue;
    if (column + columnOf(text.slice(from, at)) <= BEST_WIDTH) continue;
    parts.push(text.slice(from, at), pad, isSeveral ? '\\' : '');
    from = at + 1;
    column = indent + (isSeveral ? 1 : 0);
  }
  parts.push(text.slice(from));
  return parts.join('');
}
