/**
 * Finds the line of a field in the text of a manifest, for messages about the field. The text is searched by keys and
 * indentation, so a field of a flow mapping is found only as far as its keys begin lines.
 */

/**
 * Returns a prefix such as `line 12: ` for the line of the field, or of the innermost part of its path that the lines have.
 * Returns an empty string if they have no part of it.
 */
export function lineOf(lines: readonly string[], field: string): string {
  const index = lineIndexOf(lines, field);
  return index < 0 ? '' : `line ${index + 1}: `;
}

/** Returns the index of the line of the field, or of the innermost part of its path that the lines have; -1 for none. */
export function lineIndexOf(lines: readonly string[], field: string): number {
  const parts = field.split(/[.[\]]/).filter((part) => part !== '');
  let at = 0;
  let end = lines.length;
  let found = -1;
  for (const part of parts) {
    if (/^\d+$/.test(part)) {
      const next = nthItem(lines, at, Number(part));
      if (next < 0) break;
      at = next;
      found = next;
      end = endOfItem(lines, next);
      continue;
    }
    const pattern = new RegExp(`^[\\s-]*["']?${part.replace(/[^\w-]/g, '\\$&')}["']?\\s*:`);
    const next = lines.findIndex((line, index) => index >= at && index < end && pattern.test(line));
    if (next < 0) break;
    at = next;
    found = next;
  }
  return found;
}

/** Returns the index of the line after an item of a list, so that a field that the item lacks is not found in the next item. */
function endOfItem(lines: readonly string[], item: number): number {
  const indent = (lines[item] ?? '').search(/\S/);
  const next = lines.findIndex((line, index) => index > item && line.trim() !== '' && line.search(/\S/) <= indent);
  return next < 0 ? lines.length : next;
}

/** Returns the index of the line of the n-th item of the list that begins at `from` or after it, or -1. */
function nthItem(lines: readonly string[], from: number, wanted: number): number {
  let indent = -1;
  let count = -1;
  for (let index = from; index < lines.length; index++) {
    const match = /^(\s*)-(\s|$)/.exec(lines[index] ?? '');
    if (match === null) continue;
    const depth = (match[1] ?? '').length;
    if (indent < 0) indent = depth;
    if (depth < indent) return -1;
    if (depth === indent && (count += 1) === wanted) return index;
  }
  return -1;
}
