/**
 * Finds the runs of lines that two texts share, by Ratcliff's and Obershelp's method: the longest common run first, and then
 * the same in what is before it and behind it. The choice between equal runs decides what a diff shows, so it is that of
 * Python's difflib and its port to Go, which kube-apiserver uses.
 */

interface Block {
  /** The index of the first line in the old and in the new text. */
  readonly a: number;
  readonly b: number;
  readonly size: number;
}

interface Area {
  readonly fromA: number;
  readonly toA: number;
  readonly fromB: number;
  readonly toB: number;
}

/** A text of this many lines has popular lines, from which no run starts. */
const LONG_TEXT = 200;

/** The maximum number of comparisons of one call. Lines after it count as different, so that no text holds the process. */
const MAX_COMPARISONS = 4_000_000;

/** Returns the blocks in order. Blocks that touch each other are one. */
export function matchingBlocks(a: readonly string[], b: readonly string[]): Block[] {
  const search = { a, b, places: placesOf(b), comparisons: 0 };
  const found: Block[] = [];
  const areas: Area[] = [{ fromA: 0, toA: a.length, fromB: 0, toB: b.length }];
  for (let area = areas.pop(); area !== undefined; area = areas.pop()) {
    const block = longestIn(area, search);
    if (block.size === 0) continue;
    found.push(block);
    const { fromA, toA, fromB, toB } = area;
    if (fromA < block.a && fromB < block.b) areas.push({ fromA, toA: block.a, fromB, toB: block.b });
    const [endA, endB] = [block.a + block.size, block.b + block.size];
    if (endA < toA && endB < toB) areas.push({ fromA: endA, toA, fromB: endB, toB });
  }
  return joined(found.sort((one, other) => one.a - other.a));
}

/** Returns where each line stands, without the popular lines of a long text. */
function placesOf(lines: readonly string[]): Map<string, number[]> {
  const places = new Map<string, number[]>();
  lines.forEach((line, index) => {
    const indexes = places.get(line);
    if (indexes === undefined) places.set(line, [index]);
    else indexes.push(index);
  });
  if (lines.length < LONG_TEXT) return places;
  const most = Math.floor(lines.length / 100) + 1;
  for (const [line, indexes] of places) if (indexes.length > most) places.delete(line);
  return places;
}

interface Search {
  readonly a: readonly string[];
  readonly b: readonly string[];
  readonly places: ReadonlyMap<string, readonly number[]>;
  comparisons: number;
}

function longestIn({ fromA, toA, fromB, toB }: Area, search: Search): Block {
  const { a, b, places } = search;
  let [bestA, bestB, size] = [fromA, fromB, 0];
  /** The length of the run that ends at the previous line of `a` and at a line of `b`. */
  let runs = new Map<number, number>();
  for (let i = fromA; i < toA && search.comparisons < MAX_COMPARISONS; i++) {
    const next = new Map<number, number>();
    for (const j of places.get(a[i] ?? '') ?? []) {
      search.comparisons++;
      if (j < fromB) continue;
      if (j >= toB) break;
      const length = (runs.get(j - 1) ?? 0) + 1;
      next.set(j, length);
      if (length > size) [bestA, bestB, size] = [i - length + 1, j - length + 1, length];
    }
    runs = next;
  }
  // Popular lines belong to a run, although none starts from them.
  while (bestA > fromA && bestB > fromB && a[bestA - 1] === b[bestB - 1])
    [bestA, bestB, size] = [bestA - 1, bestB - 1, size + 1];
  while (bestA + size < toA && bestB + size < toB && a[bestA + size] === b[bestB + size]) size++;
  return { a: bestA, b: bestB, size };
}

function joined(blocks: readonly Block[]): Block[] {
  const out: Block[] = [];
  for (const block of blocks) {
    const last = out.at(-1);
    if (last !== undefined && last.a + last.size === block.a && last.b + last.size === block.b)
      out[out.length - 1] = { ...last, size: last.size + block.size };
    else out.push(block);
  }
  return out;
}
