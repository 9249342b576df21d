/** Chooses the point at which the agent is killed next. Points that were used least come first. */
import type { Random } from '../random.ts';
import type { Death } from './node.ts';

/** The share of kills at a random moment instead of a point. */
const AT_RANDOM = 0.15;
/** The share of kills at the first occurrence of a point. */
const AT_ONCE = 0.7;
const LATEST_TURN = 5;

/** The points at which the agent was killed, and how often each of them was used. */
export class DeathPlan {
  readonly #tries = new Map<string, number>();
  readonly #random: Random;

  constructor(random: Random) {
    this.#random = random;
  }

  /**
   * Returns the point at which the agent is killed next, or `undefined` for a random moment. `reached` is the number of runs in
   * which each point occurred. Points that occurred often are likely to occur again.
   */
  next(reached: ReadonlyMap<string, number>): Death | undefined {
    const again = [...reached].filter(([, lives]) => lives > 1);
    const all = (again.length > 0 ? again : [...reached]).map(([point]) => point).sort();
    if (all.length === 0 || this.#random.next() < AT_RANDOM) return undefined;
    const least = Math.min(...all.map((point) => this.#tries.get(point) ?? 0));
    const point = this.#random.pick(all.filter((one) => (this.#tries.get(one) ?? 0) === least));
    this.#tries.set(point, least + 1);
    return { point, turn: this.#random.next() < AT_ONCE ? 1 : this.#random.between(2, LATEST_TURN) };
  }
}
