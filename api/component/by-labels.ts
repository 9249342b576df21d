/**
 * A map whose keys are lists of texts: the values of a metric's labels. It looks them up one after the other, so that a look-up
 * neither joins texts nor hashes the result: requests count in a dozen metrics.
 */
type Branch<T extends object> = Map<string, Branch<T> | T>;

export class ByLabels<T extends object> {
  readonly #root: Branch<T> = new Map();
  /** In the order in which they were set. */
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

  /** All lists of one map have the same length, and each is set once. */
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

  /** Branches that become empty go too: labels such as uids of pods never come back. */
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

/** A metric without labels has one series, which stands below the empty text. */
const pathOf = (labels: readonly string[]): readonly string[] => (labels.length === 0 ? NO_LABELS : labels);
