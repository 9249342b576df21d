/**
 * Keeps what a recorded program has announced and what was acknowledged to it. The program writes it as lines, in a file that
 * is recorded as well, so that the notes at each moment of the recording are known:
 *
 * - `+ KEY VALUE`: a write of the value begins; the value `-` is a deletion, and `*` any value.
 * - `= KEY VALUE`: the last write of the key that began is acknowledged.
 * - `@ REVISION`: the revision of an acknowledged write.
 */
import assert from 'node:assert/strict';
import { openSync, writeSync } from 'node:fs';

/** The value of a key that is deleted. */
export const GONE = '-';
/** A value that is not known before it is acknowledged. */
export const ANY = '*';

/** Returns the function by which a program notes a line. The line is in the file when it returns. */
export function notesIn(file: string): (line: string) => void {
  const descriptor = openSync(file, 'a');
  return (line) => void writeSync(descriptor, `${line}\n`);
}

/** What a program finds after a power failure: the values by their keys. */
export interface Found {
  readonly values: ReadonlyMap<string, string>;
  /** The newest revision; 0 if the program has none. */
  readonly revision: number;
}

/** What is found on an empty disk. */
export const NOTHING: Found = { values: new Map(), revision: 0 };

/** The announced and the acknowledged writes. */
export class Ledger {
  /** The values that a key may have: the acknowledged one, and those whose writes have begun since. */
  readonly #allowed: Map<string, string[]>;
  #revision: number;
  #acknowledged = 0;

  /** Begins with what the program found when it started. */
  constructor({ values, revision }: Found, notes: string) {
    this.#allowed = new Map([...values].map(([key, value]) => [key, [value]]));
    this.#revision = revision;
    // The last line may be incomplete.
    for (const line of notes.split('\n').slice(0, -1)) this.#take(line.split(' '));
  }

  /** The number of acknowledged writes. */
  get acknowledged(): number {
    return this.#acknowledged;
  }

  #take([sign, key = '', value = '']: readonly string[]): void {
    if (sign === '@') this.#revision = Math.max(this.#revision, Number(key));
    else if (sign === '+') this.#allowed.set(key, [...(this.#allowed.get(key) ?? [GONE]), value]);
    else {
      this.#allowed.set(key, [value]);
      this.#acknowledged += 1;
    }
  }

  /** Throws if an acknowledged write is lost, something deleted is back, or something is there that nobody wrote. */
  check({ values, revision }: Found): void {
    for (const key of new Set([...this.#allowed.keys(), ...values.keys()])) {
      const [value, allowed] = [values.get(key) ?? GONE, this.#allowed.get(key) ?? [GONE]];
      const isAllowed = allowed.includes(value) || allowed.includes(ANY);
      assert.ok(isAllowed, `${key} is ${value}; acknowledged or under way: ${allowed.join(', ')}`);
    }
    assert.ok(revision >= this.#revision, `the revision is ${revision}, and ${this.#revision} was acknowledged`);
  }
}
