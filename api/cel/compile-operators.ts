/**
 * Compiles the operators that do not fit into the overload table: logical operators can be decided by one side, the
 * conditional operator evaluates only one branch, and equality, membership and indexing work across types.
 */
import { attempt, type Compiled, type ExpressionCompiler, type Frame } from './compiled.ts';
import type { Expr } from './parser.ts';
import { comparingCost } from './reading-cost.ts';
import { coerce, extent, itemAt, shownKey } from './value-access.ts';
import { bool, type CelType, dyn, fits, int, isOpen, join, map, optional, showType } from './types.ts';
import { adapt, CelError, type CelValue, equal, hasType, hasMember, Optional } from './values.ts';

/** An operator in an expression: its name, such as `_&&_`, and its position in the source. */
interface Operator {
  readonly compiler: ExpressionCompiler;
  readonly name: string;
  readonly at: number;
}

/** Compiles the call of a logical, conditional, equality, membership or index operator. Returns `undefined` for other calls. */
export function compileOperator(
  compiler: ExpressionCompiler,
  { name, args, at }: Extract<Expr, { kind: 'call' }>,
): Compiled | undefined {
  const [a, b, c] = args;
  if (a === undefined || b === undefined) return undefined;
  const operator: Operator = { compiler, name, at };
  switch (name) {
    case '_&&_':
    case '_||_':
      return logical(operator, args, compiler.compile(a), compiler.compile(b));
    case '_?_:_':
      return c === undefined
        ? undefined
        : conditional(operator, compiler.compile(a), compiler.compile(b), compiler.compile(c));
    case '_==_':
    case '_!=_':
      return equality(operator, compiler.compile(a), compiler.compile(b));
    case '@in':
      return contained(operator, compiler.compile(a), compiler.compile(b));
    case '_[_]':
    case '_[?_]':
      return indexed(operator, compiler.compile(a), compiler.compile(b));
    default:
      return undefined;
  }
}

function mismatch({ compiler, name, at }: Operator, args: readonly Compiled[]): Compiled {
  const types = args.map(({ type }) => showType(type)).join(', ');
  return compiler.fault(at, `found no matching overload for '${name}' applied to '(${types})'`);
}

function logical(operator: Operator, operands: readonly Expr[], a: Compiled, b: Compiled): Compiled {
  const wrong = [a, b].map(({ type }, index) =>
    fits(bool, type)
      ? undefined
      : operator.compiler.fault(
          operands[index]?.at ?? operator.at,
          `expected type 'bool' but found '${showType(type)}'`,
        ),
  );
  const fault = wrong.find((one) => one !== undefined);
  if (fault !== undefined) return fault;
  // One side can decide the result even if the other side has an error.
  const deciding = operator.name === '_||_';
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

function conditional(operator: Operator, condition: Compiled, yes: Compiled, no: Compiled): Compiled {
  if (!fits(bool, condition.type) || !(fits(yes.type, no.type) || fits(no.type, yes.type))) {
    return mismatch(operator, [condition, yes, no]);
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

function equality(operator: Operator, a: Compiled, b: Compiled): Compiled {
  if (!fits(a.type, b.type) && !fits(b.type, a.type)) return mismatch(operator, [a, b]);
  const wanted = operator.name === '_==_';
  return {
    type: bool,
    run(frame) {
      const [left, right] = [a.run(frame), b.run(frame)];
      const [leftExtent, rightExtent] = [extent(left), extent(right)];
      frame.spend(1 + Math.ceil(Math.min(leftExtent, rightExtent) / 10));
      if (leftExtent === rightExtent) frame.spend(comparingCost(left));
      return equal(left, right) === wanted;
    },
  };
}

function contained(operator: Operator, item: Compiled, where: Compiled): Compiled {
  const { type } = where;
  const ok =
    isOpen(type) ||
    (type.kind === 'list' && (fits(type.item, item.type) || fits(item.type, type.item))) ||
    (type.kind === 'map' && fits(type.key, item.type));
  if (!ok) return mismatch(operator, [item, where]);
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

function indexed(operator: Operator, operand: Compiled, key: Compiled): Compiled {
  const through = operand.type.kind === 'optional';
  const type = operand.type.kind === 'optional' ? operand.type.of : operand.type;
  let inner: CelType;
  if (isOpen(type)) inner = dyn;
  else if (type.kind === 'list' && fits(int, key.type)) inner = type.item;
  else if (type.kind === 'map' && fits(type.key, key.type)) inner = type.value;
  else return mismatch(operator, [operand, key]);
  const isOptional = operator.name === '_[?_]' || through;
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
