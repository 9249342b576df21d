/**
 * Checks calls of `format` whose text and list of arguments are literals, so that a clause that does not fit its argument is an
 * error at compile time. The messages are those of cel-go.
 */
import type { Expr } from './parser.ts';
import { type CelType, isOpen, showType } from './types.ts';

type Call = Extract<Expr, { kind: 'call' }>;
type TypeOf = (expr: Expr) => CelType;

interface Fault {
  readonly at: number;
  readonly message: string;
}

interface Clause {
  /** The kinds of types that the clause formats. */
  readonly takes: ReadonlySet<CelType['kind']>;
  readonly refuses: string;
}

const INTEGERS = ['int', 'uint'] as const;
const takes = (kinds: readonly CelType['kind'][], refuses: string): Clause => ({ takes: new Set(kinds), refuses });
const DOUBLES = ['double', 'string'] as const;
const HEX = takes([...INTEGERS, 'string', 'bytes'], 'only integers, byte buffers, and strings can be formatted as hex');
const TEXT = takes(
  [...INTEGERS, 'double', 'bool', 'string', 'bytes', 'timestamp', 'duration', 'type', 'null', 'list', 'map'],
  'string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps',
);

const CLAUSES: ReadonlyMap<string, Clause> = new Map(
  Object.entries({
    s: TEXT,
    d: takes(INTEGERS, 'decimal clause can only be used on integers'),
    f: takes(DOUBLES, 'fixed-point clause can only be used on doubles'),
    e: takes(DOUBLES, 'scientific clause can only be used on doubles'),
    b: takes([...INTEGERS, 'bool'], 'only integers and bools can be formatted as binary'),
    x: HEX,
    X: HEX,
    o: takes(INTEGERS, 'octal clause can only be used on integers'),
  }),
);

/** Returns the error of a clause for a value of a type that it does not format. */
export const refusalOf = (verb: string, typeName: string): string =>
  `${CLAUSES.get(verb)?.refuses ?? ''}, was given ${typeName}`;

/** Returns the first fault of a call, and `undefined` for calls that only a run can judge. */
export function formatFault({ name, target, args, at }: Call, typeOf: TypeOf): Fault | undefined {
  const [list] = args;
  if (name !== 'format' || target?.kind !== 'literal' || typeof target.value !== 'string') return undefined;
  if (args.length !== 1 || list?.kind !== 'list') return undefined;
  const values = list.items.map(({ value }) => value);
  let next = 0;
  for (const [clause, precision, verb] of target.value.matchAll(/%(\.\d*)?(.?)/gs)) {
    if (clause === '%%') continue;
    const unread = precision === undefined ? undefined : precisionFault(precision, verb ?? '');
    if (unread !== undefined && values[next] !== undefined)
      return { at, message: `could not parse formatting clause: ${unread}` };
    if (clause === '%') return { at, message: 'unexpected end of string' };
    const item = values[next];
    if (item === undefined) return { at, message: `index ${next} out of range` };
    next += 1;
    const fault = clauseFault(verb ?? '', item, at, typeOf);
    if (fault !== undefined) return fault;
  }
  if (values.length <= next) return undefined;
  const counts = `expected ${next}, got ${values.length}`;
  return { at, message: `too many arguments supplied to string.format (${counts})` };
}

/** Returns the error of a precision without digits, or at the end of the text. */
export function precisionFault(precision: string, verb: string): string | undefined {
  const what = 'error while parsing precision: ';
  if (verb === '') return `${what}could not find end of precision specifier`;
  if (precision !== '.') return undefined;
  return `${what}error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax`;
}

function clauseFault(verb: string, item: Expr, at: number, typeOf: TypeOf): Fault | undefined {
  const clause = CLAUSES.get(verb);
  if (clause === undefined) {
    return { at, message: `could not parse formatting clause: unrecognized formatting clause "${verb}"` };
  }
  const wrong = firstRefused(clause, item, typeOf);
  if (wrong === undefined) return undefined;
  const typeName = nameOf(typeOf(wrong));
  return { at: wrong.at, message: `error during formatting: ${clause.refuses}, was given ${typeName}` };
}

/** Returns the argument, or the innermost element of its literals, that the clause does not format. */
function firstRefused(clause: Clause, item: Expr, typeOf: TypeOf): Expr | undefined {
  const type = typeOf(item);
  if (!isOpen(type) && !clause.takes.has(type.kind)) return item;
  const inner =
    item.kind === 'list'
      ? item.items.map(({ value }) => value)
      : item.kind === 'map'
        ? item.entries.flatMap(({ key, value }) => [key, value])
        : [];
  for (const one of clause === TEXT ? inner : []) {
    const refused = firstRefused(clause, one, typeOf);
    if (refused !== undefined) return refused;
  }
  return undefined;
}

/** Returns the name that a type has at run time, without its parameters. */
const nameOf = (type: CelType): string => RUN_TIME_NAMES.get(type.kind) ?? showType(type).replace(/\(.*/s, '');

const RUN_TIME_NAMES: ReadonlyMap<string, string> = new Map([
  ['null', 'null_type'],
  ['timestamp', 'google.protobuf.Timestamp'],
  ['duration', 'google.protobuf.Duration'],
]);
