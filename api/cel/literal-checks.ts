/**
 * Checks the literals of an expression whose types are right: arguments that can never succeed, elements of several types, and
 * clauses of `format`. These are the validators that Kubernetes adds to cel-go, which run after the type check.
 */
import type { Fault } from './compiler.ts';
import { formatFault } from './format-check.ts';
import { patternOf, timestampOf } from './operators.ts';
import type { Expr } from './parser.ts';
import { parseDuration, parseTimestamp } from './time.ts';
import { type CelType, isEquivalent, showType } from './types.ts';
import { CelError, type CelValue } from './values.ts';

type TypeOf = (expr: Expr) => CelType;
type Call = Extract<Expr, { kind: 'call' }>;

function refuse(): never {
  throw new CelError('no such overload');
}

const READERS: ReadonlyMap<string, (value: CelValue) => unknown> = new Map(
  Object.entries({
    duration: (value: CelValue) => (typeof value === 'string' ? parseDuration(value) : refuse()),
    timestamp: (value: CelValue) =>
      typeof value === 'bigint' ? timestampOf(value) : typeof value === 'string' ? parseTimestamp(value) : refuse(),
    matches: (value: CelValue) => (typeof value === 'string' ? patternOf(value) : undefined),
  }),
);

/** Returns the faults of all literals in the expression. */
export function literalFaults(root: Expr, typeOf: TypeOf): readonly Fault[] {
  const faults: Fault[] = [];
  const visit = (expr: Expr, inFormat: boolean): void => {
    if (expr.kind === 'call') faults.push(...callFaults(expr, typeOf));
    if (!inFormat) faults.push(...mixedElements(expr, typeOf));
    const isFormat = inFormat || (expr.kind === 'call' && expr.name === 'format');
    for (const part of partsOf(expr)) visit(part, isFormat);
  };
  visit(root, false);
  return faults;
}

function partsOf(expr: Expr): readonly Expr[] {
  switch (expr.kind) {
    case 'select':
      return [expr.operand];
    case 'call':
      return expr.target === undefined ? expr.args : [expr.target, ...expr.args];
    case 'list':
      return expr.items.map(({ value }) => value);
    case 'map':
      return expr.entries.flatMap(({ key, value }) => [key, value]);
    case 'message':
      return expr.fields.map(({ value }) => value);
    default:
      return [];
  }
}

function callFaults(call: Call, typeOf: TypeOf): readonly Fault[] {
  const wrong = formatFault(call, typeOf);
  if (wrong !== undefined) return [wrong];
  const read = READERS.get(call.name);
  const [arg] = call.args;
  if (read === undefined || arg?.kind !== 'literal') return [];
  try {
    read(arg.value);
    return [];
  } catch (error) {
    if (!(error instanceof CelError)) throw error;
    return [{ at: arg.at, message: `invalid ${call.name} argument` }];
  }
}

/** Elements of one list or map must have one type. Of a list, the first that differs is a fault, of a map each one. */
function mixedElements(expr: Expr, typeOf: TypeOf): readonly Fault[] {
  if (expr.kind === 'list') return differing(expr.items, typeOf).slice(0, 1);
  if (expr.kind !== 'map') return [];
  const keys = expr.entries.map(({ key }) => ({ value: key, optional: false }));
  return [...differing(keys, typeOf), ...differing(expr.entries, typeOf)];
}

function differing(
  items: readonly { readonly value: Expr; readonly optional: boolean }[],
  typeOf: TypeOf,
): readonly Fault[] {
  const types = items.map(({ value, optional }) => {
    const type = typeOf(value);
    return { at: value.at, type: optional && type.kind === 'optional' ? type.of : type };
  });
  const [first] = types;
  if (first === undefined) return [];
  return types
    .filter(({ type }) => !isEquivalent(first.type, type))
    .map(({ at, type }) => ({ at, message: `expected type '${showType(first.type)}' but found '${showType(type)}'` }));
}
