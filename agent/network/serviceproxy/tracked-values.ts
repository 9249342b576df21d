/**
 * Values by name, as they should be and as they were last written. The rule writers keep chains, sets and elements in it, so
 * that a transaction has only what differs, and costs as much as the change.
 */
export interface Difference {
  readonly name: string;
  /** `undefined` if it does not exist. */
  readonly before: string | undefined;
  readonly after: string | undefined;
}

export class TrackedValues {
  readonly #desired = new Map<string, string>();
  readonly #written = new Map<string, string>();
  readonly #touched = new Set<string>();

  get(name: string): string | undefined {
    return this.#desired.get(name);
  }

  set(name: string, value: string): void {
    this.#desired.set(name, value);
    this.#touched.add(name);
  }

  delete(name: string): void {
    if (this.#desired.delete(name)) this.#touched.add(name);
  }

  differences(): Difference[] {
    const found: Difference[] = [];
    for (const name of this.#touched) {
      const [before, after] = [this.#written.get(name), this.#desired.get(name)];
      if (before !== after) found.push({ name, before, after });
    }
    return found;
  }

  /** All differences have been written. */
  commit(): void {
    for (const name of this.#touched) {
      const value = this.#desired.get(name);
      if (value === undefined) this.#written.delete(name);
      else this.#written.set(name, value);
    }
    this.#touched.clear();
  }

  /** Forgets what was written. `existing` names are there with unknown values. */
  forget(existing: Iterable<string> = []): void {
    this.#written.clear();
    this.#touched.clear();
    for (const name of this.#desired.keys()) this.#touched.add(name);
    for (const name of existing) {
      // No value has a NUL.
      this.#written.set(name, '\0');
      this.#touched.add(name);
    }
  }
}
