/**
 * Implements a map whose keys are lists of texts: the values of a metric's labels. It looks them up one after another, so that
 * a lookup neither joins nor hashes the texts.
 */
type Branch<T extends object> = Map<string, Branch<T> | T>;

/** A tree of maps, one level for each label. All keys have the same length. */
export class ByLabels<T extends object> {
  readonly #root: Branch<T> = new Map();
  /** The values in the order in which they were set. */
  readonly #all = new Set<T>();

  get isEmpty(): boolean {
    return this.#all.size === 0;
  }

  values(): Iterable<T> {
    return this.#all;
  }

  get(labels: readonly string[]): T | undefined {
    let found: Branch<T> | T | undefined = this.#root;
    for (const label of pathOf(labels)) {
      if (!(found instanceof Map)) return undefined;
      found = found.get(label);
    }
    return found instanceof Map ? undefined : found;
  }

  /** Sets a value. All lists of one map must have the same length, and each list may be set only once. */
  set(labels: readonly string[], value: T): void {
    const path = pathOf(labels);
    let branch = this.#root;
    for (const label of path.slice(0, -1)) {
      const next = branch.get(label);
      const inner: Branch<T> = next instanceof Map ? next : new Map();
      branch.set(label, inner);
      branch = inner;
    }
    branch.set(path.at(-1) ?? '', value);
    this.#all.add(value);
  }

  /** Deletes a value, and the branches that become empty. */
  delete(labels: readonly string[]): void {
    this.#remove(this.#root, pathOf(labels), 0);
  }

  #remove(branch: Branch<T>, path: readonly string[], depth: number): void {
    const label = path[depth] ?? '';
    const found = branch.get(label);
    if (found === undefined) return;
    if (found instanceof Map) {
      this.#remove(found, path, depth + 1);
      if (found.size === 0) branch.delete(label);
    } else if (depth === path.length - 1) {
      this.#all.delete(found);
      branch.delete(label);
    }
  }
}

const NO_LABELS: readonly string[] = [''];

/** Returns the path of a series in the tree of labels. A metric without labels has one series, whose path is the empty text. */
const pathOf = (labels: readonly string[]): readonly string[] => (labels.length === 0 ? NO_LABELS : labels);

/**
 * Returns a function that creates what belongs to a label on its first use, and returns the same later. One lookup then finds
 * several series of a request.
 */
export function onFirstUse<L extends string, T>(create: (label: L) => T): (label: L) => T {
  const created = new Map<L, T>();
  return (label) => {
    let found = created.get(label);
    if (found === undefined) created.set(label, (found = create(label)));
    return found;
  };
}
