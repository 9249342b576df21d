/**
 * The outcomes that a fuzzer has seen. Some targets answer with text of any length, so that only a hash of each is kept, and
 * no more than a bound: otherwise the fuzzer's own memory grows until it reports the program's.
 */
import { createHash } from 'node:crypto';

const MAX_OUTCOMES = 1_000_000;

export class Outcomes {
  readonly #hashes = new Set<number>();
  readonly #max: number;

  constructor(max = MAX_OUTCOMES) {
    this.#max = max;
  }

  get size(): number {
    return this.#hashes.size;
  }

  /** Remembers the outcome. When there are too many, none is new any more. */
  isNew(outcome: string): boolean {
    if (this.#hashes.size >= this.#max) return false;
    const before = this.#hashes.size;
    // 48 bits: of a million outcomes, two with one hash are unlikely and do no harm.
    this.#hashes.add(createHash('sha1').update(outcome).digest().readUIntBE(0, 6));
    return this.#hashes.size > before;
  }
}
