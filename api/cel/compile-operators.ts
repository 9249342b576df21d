/**
 * Compiles the operators that do not fit into the overload table: logical operators can be decided by one side, the
 * conditional operator evaluates only one branch, and equality, membership and indexing work across types. The compiler
 * calls it.
 */
import { attempt, type Compiled, type ExpressionCompiler, type Frame } from './compiled.ts';
import type { Expr } from './parser.ts';
import { comparingCost } from './reading-cost.ts';
import { coerce, extent, itemAt, shownKey } from './value-access.ts';
import { bool, type CelType, dyn, fits, int, isOpen, join, map, optional, showType } from './types.ts';
import { adapt, CelError, type CelValue, equal, hasType, hasMember, Optional } from './values.ts';

/** Returns `undefined` if the call is not one of these operators. */
export function compileOperator(
  compiler: ExpressionCompiler,
  { name, args, at }: Extract<Expr, { kind: 'call' }>,
): Compiled | undefined {
  const [a, b, c] = args;
  if (a === undefined || b === undefined) return undefined;
  switch (name) {
    case '_&&_':
    case '_||_':
      return logical(compiler, name, compiler.compile(a), compiler.compile(b), at);
    case '_?_:_':
      return c === undefined
        ? undefined
        : conditional(compiler, compiler.compile(a), compiler.compile(b), compiler.compile(c), at);
    case '_==_':
    case '_!=_':
      return equality(compiler, name, compiler.compile(a), compiler.compile(b), at);
    case '@in':
      return contained(compiler, compiler.compile(a), compiler.compile(b), at);
    case '_[_]':
    case '_[?_]':
      return indexed(compiler, name, compiler.compile(a), compiler.compile(b), at);
    default:
      return undefined;
  }
}

function mismatch(compiler: ExpressionCompiler, name: string, args: readonly Compiled[], at: number): Compiled {
  const types = args.map(({ type }) => showType(type)).join(', ');
  return compiler.fault(at, `found no matching overload for '${name}' applied to '(${types})'`);
}

function logical(compiler: ExpressionCompiler, name: string, a: Compiled, b: Compiled, at: number): Compiled {
  if (!fits(bool, a.type) || !fits(bool, b.type)) return mismatch(compiler, name, [a, b], at);
  // One side can decide the result even if the other side has an error.
  const deciding = name === '_||_';
  return {
    type: bool,
    run(frame) {
      const left = attempt(a.run, frame);
      if (left === deciding) return deciding;
      const right = attempt(b.run, frame);
      if (right === deciding) return deciding;
      if (left instanceof CelError) throw left;
      if (right instanceof CelError) throw right;
      if (typeof left !== 'boolean' || typeof right !== 'boolean') throw new CelError('no such overload');
      return !deciding;
    },
  };
}

function conditional(
  compiler: ExpressionCompiler,
  condition: Compiled,
  yes: Compiled,
  no: Compiled,
  at: number,
): Compiled {
  if (!fits(bool, condition.type) || !(fits(yes.type, no.type) || fits(no.type, yes.type))) {
    return mismatch(compiler, '_?_:_', [condition, yes, no], at);
  }
  return {
    type: join(yes.type, no.type),
    run(frame) {
      const chosen = condition.run(frame);
      if (typeof chosen !== 'boolean') throw new CelError('no such overload');
      return chosen ? yes.run(frame) : no.run(frame);
    },
  };
}

function equality(compiler: ExpressionCompiler, name: string, a: Compiled, b: Compiled, at: number): Compiled {
  if (!fits(a.type, b.type) && !fits(b.type, a.type)) return mismatch(compiler, name, [a, b], at);
  const wanted = name === '_==_';
  return {
    type: bool,
    run(frame) {
      const [left, right] = [a.run(frame), b.run(frame)];
      const [ours, theirs] = [extent(left), extent(right)];
      frame.spend(1 + Math.ceil(Math.min(ours, theirs) / 10));
      if (ours === theirs) frame.spend(comparingCost(left));
      return equal(left, right) === wanted;
    },
  };
}

function contained(compiler: ExpressionCompiler, item: Compiled, where: Compiled, at: number): Compiled {
  const { type } = where;
  const ok =
    isOpen(type) ||
    (type.kind === 'list' && (fits(type.item, item.type) || fits(item.type, type.item))) ||
    (type.kind === 'map' && fits(type.key, item.type));
  if (!ok) return mismatch(compiler, '@in', [item, where], at);
  return {
    type: bool,
    run(frame) {
      const [value, within] = [item.run(frame), where.run(frame)];
      if (!Array.isArray(within)) {
        frame.spend(1);
        if (!hasType(within, map(dyn, dyn))) throw new CelError('no such overload');
        return hasMember(within, value);
      }
      frame.spend(1 + within.length * (1 + comparingCost(value)));
      return within.some((one) => equal(adapt(one), value));
    },
  };
}

function indexed(compiler: ExpressionCompiler, name: string, operand: Compiled, key: Compiled, at: number): Compiled {
  const through = operand.type.kind === 'optional';
  const type = operand.type.kind === 'optional' ? operand.type.of : operand.type;
  let inner: CelType;
  if (isOpen(type)) inner = dyn;
  else if (type.kind === 'list' && (fits(int, key.type) || key.type.kind === 'uint')) inner = type.item;
  else if (type.kind === 'map' && fits(type.key, key.type)) inner = type.value;
  else return mismatch(compiler, name, [operand, key], at);
  const isOptional = name === '_[?_]' || through;
  const run = (frame: Frame): CelValue => {
    const outer = operand.run(frame);
    const index = key.run(frame);
    frame.spend(1);
    const value = outer instanceof Optional ? outer.value : outer;
    const found = value === undefined ? undefined : itemAt(value, index);
    if (isOptional || outer instanceof Optional) {
      return new Optional(found === undefined ? undefined : coerce(inner, found));
    }
    if (found !== undefined) return coerce(inner, found);
    if (Array.isArray(value)) throw new CelError(`index out of bounds: ${shownKey(index)}`);
    throw new CelError(`no such key: ${shownKey(index)}`);
  };
  return { type: isOptional ? optional(inner) : inner, run };
}
