/**
 * Holds desired values by name, beside those that were written last. Generators yield when their slice is spent; no value
 * may be set before they have ended.
 */
import type { Slice } from '../../../api/machinery/time-slice.ts';

/** A name whose desired value is not the one that was written. */
export interface Difference {
  readonly name: string;
  /** The former value; `undefined` if there was none. */
  readonly before: string | undefined;
  readonly after: string | undefined;
}

/** Owns the two tables. */
export class TrackedValues {
  readonly #desired = new Map<string, string>();
  readonly #written = new Map<string, string>();
  /** The names whose desired and written values may differ. */
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

  /** Returns the names whose desired value is not the written one. Yields when the slice is spent. */
  *differences(slice: Slice): Generator<void, Difference[]> {
    const found: Difference[] = [];
    for (const name of this.#touched) {
      const [before, after] = [this.#written.get(name), this.#desired.get(name)];
      if (before !== after) found.push({ name, before, after });
      if (slice.isSpent) yield;
    }
    return found;
  }

  /** Records that all differences have been written. */
  *commit(slice: Slice): Generator<void, void> {
    for (const name of this.#touched) {
      const value = this.#desired.get(name);
      if (value === undefined) this.#written.delete(name);
      else this.#written.set(name, value);
      if (slice.isSpent) yield;
    }
    this.#touched.clear();
  }

  /** Forgets what was written. `existing` names are there with unknown values. */
  *forget(slice: Slice, existing: Iterable<string> = []): Generator<void, void> {
    this.#written.clear();
    this.#touched.clear();
    for (const name of this.#desired.keys()) {
      this.#touched.add(name);
      if (slice.isSpent) yield;
    }
    for (const name of existing) {
      // No value has a NUL.
      this.#written.set(name, '\0');
      this.#touched.add(name);
      if (slice.isSpent) yield;
    }
  }
}

/** The number of lines that are joined at once. */
const LINES_PER_PART = 1000;

/** Joins lines to a text in which each ends with a line break. */
export function* joinLines(lines: readonly string[], slice: Slice): Generator<void, string> {
  let text = '';
  for (let at = 0; at < lines.length; at += LINES_PER_PART) {
    text += `${lines.slice(at, at + LINES_PER_PART).join('\n')}\n`;
    if (slice.isSpent) yield;
  }
  return text;
}
