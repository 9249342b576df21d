/**
 * Compiles macros, which look like calls but bind variables or test for a member: `has`, `all`, `map`, `cel.bind`,
 * `optMap` and others.
 */
import { CelSyntaxError } from './lexer.ts';
import { attempt, type Compiled, type ExpressionCompiler, type Frame, type Run } from './compiled.ts';
import type { Expr } from './parser.ts';
import { bool, type CelType, dyn, fits, int, isOpen, list, map, optional, showType } from './types.ts';
import { adapt, CelError, type CelMap, type CelValue, compare, entriesOf, Optional } from './values.ts';
import { readingCost } from './reading-cost.ts';
import { selected } from './value-access.ts';

type Call = Extract<Expr, { kind: 'call' }>;

/** The loop that a macro expands to, over the items or keys of a value. */
export interface Comprehension {
  readonly kind: 'all' | 'exists' | 'existsOne' | 'list' | 'map' | 'mapEntry' | 'sorted';
  readonly target: Expr;
  /** The names of the loop's variables: one for the value, or two for an index or key and a value. */
  readonly variables: readonly string[];
  /** The condition under which an iteration adds an element. Only for loops that build a list or map. */
  readonly filter: Expr | undefined;
  readonly body: Expr;
  readonly at: number;
}

const QUANTIFIERS: ReadonlyMap<string, 'all' | 'exists' | 'existsOne'> = new Map(
  Object.entries({
    all: 'all',
    exists: 'exists',
    exists_one: 'existsOne',
    existsOne: 'existsOne',
  }),
);
const TRANSFORMS: ReadonlyMap<string, 'list' | 'map' | 'mapEntry'> = new Map(
  Object.entries({
    transformList: 'list',
    transformMap: 'map',
    transformMapEntry: 'mapEntry',
  }),
);

/**
 * Parses the call of a macro that loops. Returns `undefined` if the call is not a loop. Throws `CelSyntaxError` if a variable
 * is not a name that it may have.
 */
export function comprehensionOf(call: Call): Comprehension | undefined {
  const loop = loopOf(call);
  loop?.variables.forEach((name, index) => {
    const at = call.args[index]?.at ?? call.at;
    if (name === '') {
      const isStandard = call.name === 'map' || call.name === 'filter';
      throw new CelSyntaxError({
        at,
        message: `argument ${isStandard ? 'is not an identifier' : 'must be a simple name'}`,
      });
    }
    if (name === '__result__')
      throw new CelSyntaxError({ at, message: 'iteration variable overwrites accumulator variable' });
    if (loop.variables.indexOf(name) < index)
      throw new CelSyntaxError({ at, message: `duplicate variable name: ${name}` });
  });
  return loop;
}

/** Returns the loop of a macro, or `undefined` if the call is no macro. An argument that is no name counts as an empty name. */
function loopOf({ name, target, args, at }: Call): Comprehension | undefined {
  const [first, second] = args.map((arg) => (arg.kind === 'ident' ? arg.name : ''));
  if (target === undefined || first === undefined) return undefined;
  const quantifier = QUANTIFIERS.get(name);
  if (quantifier !== undefined) {
    const variables = args.length === 3 && second !== undefined ? [first, second] : [first];
    const body = args[variables.length];
    if (body === undefined || args.length > 3) return undefined;
    // The other name of this macro belongs to the library of loops with two variables.
    if (name === 'existsOne' && variables.length === 1) return undefined;
    return { kind: quantifier, target, variables, filter: undefined, body, at };
  }
  const [, condition, mapped] = args;
  if (name === 'map') {
    if (condition === undefined || args.length > 3) return undefined;
    const parts = mapped === undefined ? { filter: undefined, body: condition } : { filter: condition, body: mapped };
    return { kind: 'list', target, variables: [first], ...parts, at };
  }
  if (name === 'filter') {
    const [body] = args;
    if (body === undefined || condition === undefined || args.length > 2) return undefined;
    return { kind: 'list', target, variables: [first], filter: condition, body, at };
  }
  if (name === 'sortBy') {
    if (condition === undefined || mapped !== undefined) return undefined;
    return { kind: 'sorted', target, variables: [first], filter: undefined, body: condition, at };
  }
  const transform = TRANSFORMS.get(name);
  const body = args.at(-1);
  if (transform === undefined || second === undefined || body === undefined) return undefined;
  if (args.length < 3 || args.length > 4) return undefined;
  return {
    kind: transform,
    target,
    variables: [first, second],
    filter: args.length === 4 ? args[2] : undefined,
    body,
    at,
  };
}

/** Compiles the call of a macro. Returns `undefined` for an ordinary call. */
export function compileMacro(compiler: ExpressionCompiler, call: Call): Compiled | undefined {
  const { name, target, args, at } = call;
  const [first] = args;
  if (target === undefined) {
    return name === 'has' && first !== undefined && args.length === 1 ? hasMember(compiler, first, at) : undefined;
  }
  if (compiler.bindings && name === 'bind' && target.kind === 'ident' && target.name === 'cel')
    return bind(compiler, args);
  if (name === 'optMap' || name === 'optFlatMap') return optMap(compiler, call, name === 'optFlatMap');
  const loop = comprehensionOf(call);
  if (loop === undefined) return undefined;
  switch (loop.kind) {
    case 'all':
    case 'exists':
    case 'existsOne':
      return quantifier(compiler, loop);
    case 'list':
      return projection(compiler, loop);
    case 'map':
    case 'mapEntry':
      return mapProjection(compiler, loop);
    case 'sorted':
      return sortedBy(compiler, loop);
  }
}

function hasMember(compiler: ExpressionCompiler, arg: Expr, at: number): Compiled {
  if (arg.kind !== 'select' || arg.optional)
    throw new CelSyntaxError({ at: arg.at, message: 'invalid argument to has() macro' });
  const operand = compiler.compile(arg.operand);
  const { type } = operand;
  compiler.fieldType(type.kind === 'optional' ? type.of : type, arg.field, at);
  return {
    type: bool,
    run(frame) {
      const value = operand.run(frame);
      frame.spend(1);
      const inner = value instanceof Optional ? value.value : value;
      return inner !== undefined && selected(inner, arg.field) !== undefined;
    },
  };
}

function bind(compiler: ExpressionCompiler, args: readonly Expr[]): Compiled | undefined {
  const [variable, init, body, further] = args;
  if (further !== undefined || variable?.kind !== 'ident' || init === undefined || body === undefined) return undefined;
  const value = compiler.compile(init);
  return compiler.within([{ name: variable.name, type: value.type }], ([slot = 0]) => {
    const inner = compiler.compile(body);
    return {
      type: inner.type,
      run(frame) {
        frame.locals[slot] = value.run(frame);
        return inner.run(frame);
      },
    };
  });
}

function optMap(compiler: ExpressionCompiler, { target, args }: Call, flat: boolean): Compiled | undefined {
  const [variable, body] = args;
  if (target === undefined || variable === undefined || body === undefined || args.length > 2) return undefined;
  if (variable.kind !== 'ident') {
    const macro = flat ? 'optFlatMap' : 'optMap';
    throw new CelSyntaxError({ at: variable.at, message: `${macro}() variable name must be a simple identifier` });
  }
  const from = compiler.compile(target);
  const type = from.type.kind === 'optional' ? from.type.of : dyn;
  return compiler.within([{ name: variable.name, type }], ([slot = 0]) => {
    const inner = compiler.compile(body);
    return {
      type: flat ? inner.type : optional(inner.type),
      run(frame) {
        const value = from.run(frame);
        if (!(value instanceof Optional)) throw new CelError('no such overload');
        if (value.value === undefined) return value;
        frame.locals[slot] = value.value;
        const result = inner.run(frame);
        return flat ? result : new Optional(result);
      },
    };
  });
}

interface Loop {
  readonly range: Run;
  readonly slots: readonly number[];
}

/** Returns the types of one or two loop variables over a list or a map. */
function variableTypes(compiler: ExpressionCompiler, range: Compiled, count: number, at: number): readonly CelType[] {
  const { type } = range;
  if (isOpen(type)) return [dyn, dyn];
  if (type.kind === 'list') return count === 2 ? [int, type.item] : [type.item];
  if (type.kind === 'map') return count === 2 ? [type.key, type.value] : [type.key];
  compiler.fault(
    at,
    `expression of type '${showType(type)}' cannot be range of a comprehension (must be list, map, or dynamic)`,
  );
  return [dyn, dyn];
}

/**
 * Assigns the items of a list or the keys of a map to the slot, one after another. Two slots get index and item, or key and
 * value.
 */
function* steps({ range, slots }: Loop, frame: Frame): Generator<undefined> {
  const value = range(frame);
  const { locals } = frame;
  const [first = 0, second] = slots;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index += 1) {
      frame.spend(1);
      const item = adapt(value[index]);
      locals[first] = second === undefined ? item : BigInt(index);
      if (second !== undefined) locals[second] = item;
      yield;
    }
    return;
  }
  const entries = entriesOf(value);
  if (entries === undefined) throw new CelError('no such overload');
  // All entries are read, although the loop may end at the first.
  frame.spend(2 * entries.length);
  for (const [key, inner] of entries) {
    frame.spend(1);
    locals[first] = key;
    if (second !== undefined) locals[second] = inner;
    yield;
  }
}

function looped<Result>(
  compiler: ExpressionCompiler,
  { target, variables }: Comprehension,
  make: (loop: Loop, types: readonly CelType[]) => Result,
): Result {
  const range = compiler.compile(target);
  const types = variableTypes(compiler, range, variables.length, target.at);
  const declared = variables.map((name, index) => ({ name, type: types[index] ?? dyn }));
  return compiler.within(declared, (slots) => make({ range: range.run, slots }, types));
}

function condition(compiler: ExpressionCompiler, expr: Expr): Compiled {
  const compiled = compiler.compile(expr);
  if (fits(bool, compiled.type)) return compiled;
  return compiler.fault(expr.at, `expected type 'bool' but found '${showType(compiled.type)}'`);
}

/** Checks the filter of a loop, which decides between the result so far and the result with one more element. */
function checkFilter(compiler: ExpressionCompiler, filter: Compiled | undefined, result: CelType, at: number): void {
  if (filter === undefined || fits(bool, filter.type)) return;
  const types = [filter.type, result, result].map(showType).join(', ');
  compiler.fault(at, `found no matching overload for '_?_:_' applied to '(${types})'`);
}

function quantifier(compiler: ExpressionCompiler, parts: Comprehension): Compiled {
  return looped(compiler, parts, (loop) => {
    if (parts.kind === 'existsOne') {
      // The loop counts with a condition.
      const counted = compiler.compile(parts.body);
      checkFilter(compiler, counted, int, parts.at);
      return { type: bool, run: onlyOne(loop, counted) };
    }
    const body = condition(compiler, parts.body);
    const deciding = parts.kind === 'exists';
    return {
      type: bool,
      run(frame) {
        let failure: CelError | undefined;
        for (const _step of steps(loop, frame)) {
          const result = attempt(body.run, frame);
          if (result === deciding) return deciding;
          if (result instanceof CelError) failure ??= result;
          else if (typeof result !== 'boolean') failure ??= new CelError('no such overload');
        }
        if (failure !== undefined) throw failure;
        return !deciding;
      },
    };
  });
}

function onlyOne(loop: Loop, body: Compiled): Run {
  return (frame) => {
    let count = 0;
    for (const _step of steps(loop, frame)) if (passes(body.run(frame))) count += 1;
    return count === 1;
  };
}

function projection(compiler: ExpressionCompiler, parts: Comprehension): Compiled {
  return looped(compiler, parts, (loop) => {
    const filter = parts.filter === undefined ? undefined : compiler.compile(parts.filter);
    const body = compiler.compile(parts.body);
    checkFilter(compiler, filter, list(body.type), parts.at);
    return {
      type: list(body.type),
      run(frame) {
        const values: CelValue[] = [];
        for (const _step of steps(loop, frame)) {
          if (filter === undefined || passes(filter.run(frame))) values.push(body.run(frame));
        }
        return values;
      },
    };
  });
}

const SORT_KEYS: ReadonlySet<string> = new Set([
  'int',
  'uint',
  'double',
  'bool',
  'string',
  'bytes',
  'duration',
  'timestamp',
]);

/** Sorts the items by the keys that the body computes for them. Items with equal keys stay in their order. */
function sortedBy(compiler: ExpressionCompiler, parts: Comprehension): Compiled {
  return looped(compiler, parts, (loop, [item = dyn]) => {
    const body = compiler.compile(parts.body);
    const shown = showType(body.type);
    if (!isOpen(body.type) && !SORT_KEYS.has(shown)) {
      const types = `'${showType(list(item))}.(list(${shown}))'`;
      return compiler.fault(parts.at, `found no matching overload for '@sortByAssociatedKeys' applied to ${types}`);
    }
    return {
      type: list(item),
      run(frame) {
        const keyed: { readonly key: CelValue; readonly value: CelValue }[] = [];
        const [slot = 0] = loop.slots;
        for (const _step of steps(loop, frame)) keyed.push({ value: frame.locals[slot] ?? null, key: body.run(frame) });
        frame.spend(readingCost(keyed.map(({ key }) => key)) * Math.ceil(Math.log2(keyed.length + 1)));
        return keyed.toSorted((a, b) => compare(a.key, b.key)).map(({ value }) => value);
      },
    };
  });
}

function mapProjection(compiler: ExpressionCompiler, parts: Comprehension): Compiled {
  return looped(compiler, parts, (loop, types) => {
    const filter = parts.filter === undefined ? undefined : compiler.compile(parts.filter);
    const body = compiler.compile(parts.body);
    const isEntry = parts.kind === 'mapEntry';
    if (isEntry && body.type.kind !== 'map' && !isOpen(body.type)) {
      const shown = `'(map(dyn, dyn), ${showType(body.type)})'`;
      return compiler.fault(parts.at, `found no matching overload for 'cel.@mapInsert' applied to ${shown}`);
    }
    const type = isEntry ? body.type : map(types[0] ?? dyn, body.type);
    checkFilter(compiler, filter, type, parts.at);
    return {
      type,
      run(frame) {
        const result: CelMap = new Map();
        const [slot = 0] = loop.slots;
        for (const _step of steps(loop, frame)) {
          const key = frame.locals[slot];
          if (filter !== undefined && !passes(filter.run(frame))) continue;
          const value = body.run(frame);
          const entries = isEntry ? (entriesOf(value) ?? []) : [[key as string, value] as const];
          for (const [name, inner] of entries) {
            if (result.has(name)) throw new CelError(`insert failed: key ${String(name)} already exists`);
            result.set(name, inner);
          }
        }
        return result;
      },
    };
  });
}

function passes(value: CelValue): boolean {
  if (typeof value !== 'boolean') throw new CelError('no such overload');
  return value;
}
