/**
 * Compiles calls of functions whose arguments are compiled: it chooses the overloads that fit their types, and evaluates what
 * cel-go evaluates when it creates a program (conversions of constants, literal patterns).
 */
import type { Compiled, ExpressionCompiler } from './compiled.ts';
import type { Overload } from './functions.ts';
import { patternOf, payForPattern } from './operators.ts';
import { type CelType, dyn, fits, isOpen, join, showType, substitute } from './types.ts';
import { CelError, type CelValue, hasType, typeNameOf } from './values.ts';

interface CalledFunction {
  readonly name: string;
  /** Whether the first argument is the receiver. */
  readonly isMethod: boolean;
  readonly at: number;
  readonly overloads: readonly Overload[];
}

/**
 * Compiles the call of a function by its overloads. Reports a fault if none fits. If several may fit, one is chosen for each
 * evaluation.
 */
export function compileOverloads(
  compiler: ExpressionCompiler,
  { name, isMethod, at, overloads }: CalledFunction,
  args: readonly Compiled[],
): Compiled {
  let result: CelType | undefined;
  const candidates = overloads.filter(({ args: wanted, result: declared }) => {
    if (wanted.length !== args.length) return false;
    const bound = new Map<string, CelType>();
    if (!wanted.every((type, index) => fits(type, args[index]?.type ?? dyn, bound))) return false;
    result = join(result, substitute(declared, bound));
    return true;
  });
  if (candidates.length === 0) {
    const [first = '', ...others] = args.map(({ type }) => showType(type));
    const shown = isMethod ? `${first}.(${others.join(', ')})` : `(${[first, ...others].join(', ')})`;
    return compiler.fault(at, `found no matching overload for '${name}' applied to '${shown}'`);
  }
  const [first] = candidates;
  const isDecided = candidates.length === 1 && args.every(({ type }) => !isOpen(type));
  const runs = args.map(({ run }) => run);
  const chosenFor = (values: readonly CelValue[]): Overload | undefined =>
    candidates.find(({ args: wanted }) => wanted.every((type, index) => hasType(values[index] ?? null, type)));
  const constant = isMethod || args.length !== 1 || !CONVERSIONS.has(name) ? undefined : args[0]?.constant;
  const converted = constant === undefined ? undefined : convert(compiler, name, chosenFor([constant]), constant);
  return {
    ...(converted === undefined ? {} : { constant: converted }),
    type: result ?? dyn,
    run(frame) {
      frame.spend(1);
      const values = runs.map((run) => run(frame));
      // Null fits the types of times and of the libraries when the expression is compiled, but no overload takes it.
      const chosen = isDecided && !values.includes(null) ? first : chosenFor(values);
      if (chosen === undefined) throw new CelError(noOverload(name, values));
      return chosen.run(values, frame);
    },
  };
}

const NUMBERS = 'double int uint';
const TIMES = 'google.protobuf.Duration google.protobuf.Timestamp';
const ORDERED = `bool bytes string ${NUMBERS} ${TIMES}`;

/** The types whose values have an operator. For a first operand of another type, the error of cel-go names the operator. */
const OPERAND_TYPES: ReadonlyMap<string, ReadonlySet<string>> = new Map(
  Object.entries({
    '_+_': `bytes list string ${NUMBERS} ${TIMES}`,
    '_-_': `${NUMBERS} ${TIMES}`,
    '_*_': NUMBERS,
    '_/_': NUMBERS,
    '_%_': 'int uint',
    '-_': 'bool double int',
    '!_': `bool ${NUMBERS}`,
    '_<_': ORDERED,
    '_<=_': ORDERED,
    '_>_': ORDERED,
    '_>=_': ORDERED,
    size: `bytes list map string ${TIMES}`,
  }).map(([name, types]) => [name, new Set(types.split(' '))]),
);

/** The types of cel-go that choose among their methods themselves, without naming the function. */
const RECEIVERS: ReadonlySet<string> = new Set(`string ${TIMES}`.split(' '));

function noOverload(name: string, values: readonly CelValue[]): string {
  const types = values.map(typeNameOf);
  const operands = OPERAND_TYPES.get(name);
  if (operands === undefined) return `no such overload: ${name}(${types.join(', ')})`;
  const [first = ''] = types;
  const isNamed = !operands.has(first) && !RECEIVERS.has(first);
  return isNamed ? `no such overload: ${name}` : 'no such overload';
}

/** The functions that convert types. A conversion of a constant is evaluated when the expression is compiled. */
const CONVERSIONS: ReadonlySet<string> = new Set(
  'bool bytes double duration dyn int string timestamp type uint'.split(' '),
);

/** Returns the converted constant. An error is one of the whole expression. */
function convert(
  compiler: ExpressionCompiler,
  name: string,
  overload: Overload | undefined,
  constant: CelValue,
): CelValue | undefined {
  try {
    if (overload !== undefined) return overload.run([constant], { spend: () => undefined });
    compiler.failConstant(noOverload(name, [constant]));
    return undefined;
  } catch (error) {
    if (!(error instanceof CelError)) throw error;
    compiler.failConstant(error.message);
    return undefined;
  }
}

/** Functions whose second argument is a regular expression. */
export const PATTERN_FUNCTIONS: ReadonlySet<string> = new Set(['matches', 'find', 'findAll']);

/** Compiles the argument of a function that takes a regular expression. An invalid literal is an error of the expression. */
export function compilePattern(compiler: ExpressionCompiler, compiled: Compiled): Compiled {
  const { constant, type, run } = compiled;
  if (typeof constant === 'string') {
    try {
      patternOf(constant);
    } catch (error) {
      if (!(error instanceof CelError)) throw error;
      compiler.failConstant(error.message);
    }
  }
  if (constant !== undefined) return compiled;
  return {
    type,
    run(frame) {
      const value = run(frame);
      if (typeof value === 'string') payForPattern(value, frame);
      return value;
    },
  };
}
