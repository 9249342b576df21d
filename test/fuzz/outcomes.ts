/**
 * Remembers the outcomes that a fuzzer has seen. Outcomes can be long, so it keeps only hashes, and a limited number of them.
 * Otherwise the memory of the fuzzer itself would exceed the limit for the program.
 */
import { createHash } from 'node:crypto';

const MAX_OUTCOMES = 1_000_000;

/** The set of outcomes that were seen before. */
export class Outcomes {
  readonly #hashes = new Set<number>();
  readonly #max: number;

  constructor(max = MAX_OUTCOMES) {
    this.#max = max;
  }

  get size(): number {
    return this.#hashes.size;
  }

  /** Remembers the outcome. If too many are known, no further outcome counts as new. */
  isNew(outcome: string): boolean {
    if (this.#hashes.size >= this.#max) return false;
    const before = this.#hashes.size;
    // Of a million outcomes, two rarely have the same 48 bits, and a collision does no harm.
    this.#hashes.add(createHash('sha1').update(outcome).digest().readUIntBE(0, 6));
    return this.#hashes.size > before;
  }
}
