/** What the fuzzer needs to know of a part of the program that it attacks. */
import type { Random } from './random.ts';

export interface Target {
  readonly seeds: readonly (string | Buffer)[];
  /** Words of its format. */
  readonly words: readonly string[];
  /** Inputs that no change of bytes would come to. */
  readonly generate?: (random: Random) => Buffer;
  /**
   * Feeds one input, and returns the outcome in a word. Throws for anything that must not happen: errors of other than the
   * declared types, or broken laws.
   */
  execute(input: Buffer): string | Promise<string>;
  close?(): Promise<void>;
}

/** The outcome of a function that may throw errors of these types only. */
export function outcome(run: () => unknown, declared: readonly (abstract new (...args: never[]) => Error)[]): string {
  try {
    const value = run();
    return typeof value === 'string' ? value : `ok ${shape(value, 2)}`;
  } catch (error) {
    if (!declared.some((type) => error instanceof type)) throw error;
    return errorClass(error as Error);
  }
}

/** An error's text without what came from the input. */
export function errorClass(error: Error): string {
  // Through a buffer, so that no part holds a long message in memory.
  return `${error.constructor.name} ${Buffer.from(error.message.slice(0, 200))
    .toString()
    .replaceAll(/"(?:[^"\\]|\\.)*"|'[^']*'|[\d.]+/g, '#')
    .replaceAll(/[^ -~]/g, '?')
    .slice(0, 40)}`;
}

function shape(value: unknown, depth: number): string {
  if (typeof value !== 'object' || value === null) return typeof value;
  if (depth === 0) return 'o';
  if (Array.isArray(value)) return `[${value.length === 0 ? '' : shape(value[0], depth - 1)}]`;
  const [first] = Object.values(value);
  return `{${Math.min(3, Object.keys(value).length)}${first === undefined ? '' : shape(first, depth - 1)}}`;
}

export class Violation extends Error {
  override readonly name = 'Violation';
}

export function law(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Violation(what);
}
