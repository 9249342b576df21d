/**
 * Slows down the commands of probes that print much. A runtime sends all that a command prints, up to 32 MiB: 16 MiB take
 * the agent 45 ms, and a pod may have hundreds of probes in each second.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import { FairTurns } from '../../../api/machinery/fair-turns.ts';

/** The output from which on a command is loud. */
const LOUD_BYTES = 256 << 10;
/** What loud commands may print in a second, all together. */
const LOUD_BYTES_PER_SECOND = 4 << 20;
/** The maximum number of containers that are remembered. */
const MAX_REMEMBERED = 4096;

interface Printed {
  readonly outputBytes: number;
}

/** Owns the turns of containers whose last command was loud. */
export class LoudCommands {
  readonly #clock: Clock;
  readonly #loud = new Set<string>();
  readonly #turns = new FairTurns({ mostAtOnce: 1, mostWaiting: 256 });

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Runs the command, and resolves and rejects as it does. If the last command of the container was loud, the command waits
   * for its turn first, and is rejected without a run if too many wait.
   */
  async run<T extends Printed>(container: string, command: () => Promise<T>): Promise<T> {
    if (!this.#loud.has(container)) return this.#record(container, await command());
    const outcome = Promise.withResolvers<T>();
    const turn = async (): Promise<void> => {
      const result = this.#record(container, await command());
      outcome.resolve(result);
      await this.#clock.sleep((result.outputBytes / LOUD_BYTES_PER_SECOND) * 1000);
    };
    this.#turns.run(container, turn, () => true).catch(outcome.reject);
    return outcome.promise;
  }

  #record<T extends Printed>(container: string, result: T): T {
    this.#loud.delete(container);
    if (result.outputBytes <= LOUD_BYTES) return result;
    this.#loud.add(container);
    const [first] = this.#loud.size > MAX_REMEMBERED ? this.#loud : [];
    if (first !== undefined) this.#loud.delete(first);
    return result;
  }
}
