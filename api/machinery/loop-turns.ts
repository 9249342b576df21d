/**
 * Admits work to the turns of the event loop. Code of this process that calls other code of this process runs in one chain of
 * promises without any I/O in between, so thousands of requests of controllers would block the loop. Once a turn has had its
 * share, further units wait in order for the next turns.
 */
import type { Clock } from './clock.ts';

/** The time that the work of one turn may take. */
const SHARE_MS = 10;
/**
 * The number of units that one turn may begin. The cost of a unit is only known afterwards, so the limit adapts to the duration
 * of the last turns.
 */
const FIRST_LIMIT = 8;
const HIGHEST_LIMIT = 32;

/** Counts the work of the current turn. */
export class LoopTurns {
  readonly #clock: Pick<Clock, 'monotonic'>;
  #waiting: (() => void)[] = [];
  /** The index of the first waiting unit. */
  #first = 0;
  #limit = FIRST_LIMIT;
  #begun = 0;
  #beganAtMs = 0;
  #isUnderWay = false;

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock;
  }

  /** Returns `undefined` if the unit may begin now. Otherwise it must wait for the promise. */
  begin(): Promise<void> | undefined {
    this.#startTurn();
    const isSpent = this.#begun >= this.#limit || this.#clock.monotonic() - this.#beganAtMs >= SHARE_MS;
    if (isSpent || this.#first < this.#waiting.length) return new Promise((resolve) => this.#waiting.push(resolve));
    this.#begun += 1;
    return undefined;
  }

  #startTurn(): void {
    if (this.#isUnderWay) return;
    this.#isUnderWay = true;
    this.#begun = 0;
    this.#beganAtMs = this.#clock.monotonic();
    setImmediate(() => this.#endTurn());
  }

  #endTurn(): void {
    this.#isUnderWay = false;
    if (this.#clock.monotonic() - this.#beganAtMs >= SHARE_MS) this.#limit = Math.max(1, this.#limit >> 1);
    else this.#limit = Math.min(HIGHEST_LIMIT, this.#limit + 1);
    const released = this.#waiting.slice(this.#first, this.#first + this.#limit);
    this.#first += released.length;
    if (this.#first === this.#waiting.length) {
      this.#waiting = [];
      this.#first = 0;
    }
    if (released.length === 0) return;
    this.#startTurn();
    this.#begun = released.length;
    for (const release of released) release();
  }
}
