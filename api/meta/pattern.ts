/**
 * Compiles regular expressions from users. They match in linear time, but counted repetitions multiply: `a{1000}` written a
 * thousand times would take seconds and gigabytes to compile.
 */
import { RE2JS, RE2JSSyntaxException } from 're2js';
import { spendSteps } from './validation-effort.ts';

/** The maximum number of instructions of a compiled pattern. */
const MAX_PROGRAM_SIZE = 50_000;

/** The cost of compiling one instruction, in steps. */
const STEPS_OF_COMPILING = 500;

/**
 * Throws a `RE2JSException` for a pattern that is malformed or too large. Charges the budget of the validation, if there is
 * one.
 */
export function compilePattern(source: string): RE2JS {
  const size = patternSize(source);
  if (size > MAX_PROGRAM_SIZE) throw new RE2JSSyntaxException('expression too large');
  spendSteps(STEPS_OF_COMPILING * size);
  return RE2JS.compile(source);
}

/**
 * Returns an upper bound for the number of instructions of a pattern without compiling it. It is infinite for a pattern that is
 * too long. Throws a `RE2JSException` for a character class without an end.
 */
export function patternSize(source: string): number {
  return source.length > MAX_PROGRAM_SIZE ? Infinity : programSizeOf(source);
}

/** A cache of entries by pattern, whose instructions are at most `maxInstructions` together. The oldest entries are dropped. */
export class PatternCache<T> {
  readonly #entries = new Map<string, { readonly entry: T; readonly size: number }>();
  readonly #maxInstructions: number;
  #instructions = 0;

  constructor(maxInstructions: number) {
    this.#maxInstructions = maxInstructions;
  }

  get(source: string): T | undefined {
    return this.#entries.get(source)?.entry;
  }

  /** Adds an entry for a pattern that has none. */
  add(source: string, entry: T, size: number): void {
    this.#entries.set(source, { entry, size });
    this.#instructions += size;
    for (const [oldest, dropped] of this.#entries) {
      if (this.#instructions <= this.#maxInstructions) return;
      this.#entries.delete(oldest);
      this.#instructions -= dropped.size;
    }
  }
}

const REPETITION = /\{(\d+)(?:,(\d*))?\}/y;
const ESCAPE = /\\(?:[pP](?:\{[^}]{0,64}\}|.)|x\{[^}]{0,64}\}|.)/sy;
const CLASS = /\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]/sy;
const LITERAL = /\\Q(.*?)(?:\\E|$)/sy;

function matchAt(expression: RegExp, source: string, at: number): RegExpExecArray | null {
  expression.lastIndex = at;
  return expression.exec(source);
}

/**
 * Returns an upper bound of the number of instructions of a compiled pattern: a repetition counts as its expansion, and
 * everything else as one or two instructions. Throws `RE2JSSyntaxException` if a character class has no end.
 */
function programSizeOf(source: string): number {
  const outer: number[] = [];
  let sum = 0;
  /** The size of the part that a following repetition would repeat. */
  let last = 0;
  const add = (size: number): void => {
    last = size;
    sum += size;
  };
  for (let at = 0; at < source.length;) {
    const char = source[at];
    const literal = char === '\\' ? matchAt(LITERAL, source, at) : null;
    const escape = char === '\\' ? matchAt(ESCAPE, source, at) : null;
    const set = char === '[' ? matchAt(CLASS, source, at) : null;
    // The parser of the library takes quadratic time to find this error.
    if (char === '[' && set === null) throw new RE2JSSyntaxException('missing closing ]', source.slice(at));
    const whole = literal ?? escape ?? set;
    const repetition = char === '{' ? matchAt(REPETITION, source, at) : null;
    if (whole !== null) {
      add(1);
      sum += literal?.[1]?.length ?? 0;
    } else if (repetition !== null) {
      const times = Math.max(1, Number(repetition[1]), Number(repetition[2] ?? 0));
      sum -= last;
      add((last + 1) * times);
    } else if (char === '(') {
      outer.push(sum);
      sum = 0;
      last = 0;
    } else if (char === ')') {
      const inner = sum + 2;
      sum = outer.pop() ?? 0;
      add(inner);
    } else if (char === '*' || char === '+' || char === '?') {
      sum += 1;
      last += 1;
    } else add(1);
    at += (whole ?? repetition)?.[0].length ?? 1;
  }
  return sum;
}
