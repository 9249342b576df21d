/** Describes a part of the program to the fuzzer that attacks it. */
import type { Random } from './random.ts';

export interface Target {
  readonly seeds: readonly (string | Buffer)[];
  /** Words of the format. */
  readonly words: readonly string[];
  /** Generates inputs that mutations of bytes would not find. */
  readonly generate?: (random: Random) => Buffer;
  /** Runs one input and returns its outcome as a word. Throws on violations: undeclared errors, or laws that do not hold. */
  execute(input: Buffer): string | Promise<string>;
  close?(): Promise<void>;
}

/** Returns the outcome of a function that may throw only errors of these types. */
export function outcome(run: () => unknown, declared: readonly (abstract new (...args: never[]) => Error)[]): string {
  try {
    const value = run();
    return typeof value === 'string' ? value : `ok ${shape(value, 2)}`;
  } catch (error) {
    if (!declared.some((type) => error instanceof type)) throw error;
    return errorClass(error as Error);
  }
}

/** Returns an error's text without the parts that come from the input. */
export function errorClass(error: Error): string {
  // The copy through a buffer keeps no long message in memory.
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

/** The error of a law that does not hold for an input. */
export class Violation extends Error {
  override readonly name = 'Violation';
}

/** Throws a `Violation` unless the law holds. */
export function law(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Violation(what);
}
