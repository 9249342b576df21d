/**
 * Estimates the maximum cost of an expression from its tree and from the maximum sizes of its variables.
 *
 * The estimate follows the rules of cel-go, because a definition that kube-apiserver accepts must be accepted here.
 */
import { callCost, type CallEstimate, type CostNode, sizeOf } from './call-costs.ts';
import { ANYTHING, exactly, NOTHING, ONE, product, type Range, sum, union } from './cost-range.ts';
import { comprehensionOf, type Comprehension } from './macros.ts';
import type { Expr } from './parser.ts';
import { type CelType, dyn, list } from './types.ts';
import { Double, Uint } from './values.ts';

/**
 * Returns the maximum size (characters, bytes, items or members) of the value at a path. A path is the variable,
 * followed by names of members, `@items`, `@indices`, `@keys` and `@values`. Returns `undefined` if the path does not exist.
 */
export type SizeAt = (path: readonly string[]) => number | undefined;

interface CheckedExpression {
  readonly expr: Expr;
  readonly types: ReadonlyMap<Expr, CelType>;
}

type Call = Extract<Expr, { kind: 'call' }>;

/** The sizes of the elements of a list or map that the expression constructs. */
interface Entries {
  readonly isList: boolean;
  readonly key: Range;
  readonly value: Range;
}

interface Local {
  readonly name: string;
  readonly path: readonly string[];
  readonly size: Range | undefined;
  readonly entries: Entries | undefined;
}

const LIST = exactly(10);
const MAP = exactly(30);
const MESSAGE = exactly(40);
/** A sort by keys binds the list, beside an empty list, and reads it twice: as what is sorted, and for the keys. */
const SORTED = exactly(12);
const SCALARS: ReadonlySet<string> = new Set(['bool', 'double', 'duration', 'int', 'timestamp', 'uint']);

/** Returns the least and the greatest cost of one evaluation. */
export function estimateCost({ expr, types }: CheckedExpression, sizeAt: SizeAt): Range {
  return new Estimate(types, sizeAt).cost(expr);
}

class Estimate {
  readonly #types: ReadonlyMap<Expr, CelType>;
  readonly #sizeAt: SizeAt;
  readonly #paths = new Map<Expr, readonly string[]>();
  readonly #sizes = new Map<Expr, Range>();
  readonly #entries = new Map<Expr, Entries>();
  readonly #locals: Local[] = [];

  constructor(types: ReadonlyMap<Expr, CelType>, sizeAt: SizeAt) {
    this.#types = types;
    this.#sizeAt = sizeAt;
  }

  cost(expr: Expr): Range {
    switch (expr.kind) {
      case 'literal':
        return NOTHING;
      case 'ident':
        this.#paths.set(expr, this.#local(expr.name)?.path ?? [expr.name]);
        return ONE;
      case 'select':
        return this.#select(expr);
      case 'list':
        return this.#list(expr);
      case 'map':
        return this.#map(expr);
      case 'message':
        return sum(MESSAGE, ...expr.fields.map(({ value }) => this.cost(value)));
      case 'call':
        return this.#call(expr);
    }
  }

  #type(expr: Expr): CelType {
    return this.#types.get(expr) ?? dyn;
  }

  #local(name: string): Local | undefined {
    return this.#locals.findLast((local) => local.name === name);
  }

  #select(expr: Extract<Expr, { kind: 'select' }>): Range {
    // The name of a type.
    if (this.#type(expr).kind === 'type') {
      this.#paths.set(expr, [expr.field]);
      return ONE;
    }
    const operand = this.cost(expr.operand);
    if (expr.optional) return sum(operand, ONE);
    this.#paths.set(expr, [...this.#path(expr.operand), expr.field]);
    return ['map', 'object', 'param'].includes(this.#type(expr.operand).kind) ? sum(operand, ONE) : operand;
  }

  #list(expr: Extract<Expr, { kind: 'list' }>): Range {
    const costs = expr.items.map(({ value }) => this.cost(value));
    const value = expr.items
      .map((item) => this.#sizeOrAny(item.value))
      .reduce(union, expr.items.length === 0 ? NOTHING : NEUTRAL);
    this.#entries.set(expr, { isList: true, key: ONE, value });
    return sum(LIST, ...costs);
  }

  #map(expr: Extract<Expr, { kind: 'map' }>): Range {
    const costs = expr.entries.flatMap((entry) => [this.cost(entry.key), this.cost(entry.value)]);
    const start = expr.entries.length === 0 ? NOTHING : NEUTRAL;
    const key = expr.entries.map((entry) => this.#sizeOrAny(entry.key)).reduce(union, start);
    const value = expr.entries.map((entry) => this.#sizeOrAny(entry.value)).reduce(union, start);
    this.#entries.set(expr, { isList: false, key, value });
    return sum(MAP, ...costs);
  }

  #call(expr: Call): Range {
    const macro = this.#macro(expr);
    if (macro !== undefined) return macro;
    const { name, target, args } = expr;
    if (name === 'dyn' && target === undefined && args[0] !== undefined) {
      const cost = sum(ONE, this.cost(args[0]));
      this.#copySizes(expr, args[0]);
      return cost;
    }
    // In `ip.isCanonical(…)`, the part before the dot is a namespace and not a value.
    const namespace = target?.kind === 'ident' && !this.#types.has(target) ? target.name : undefined;
    const costs = args.map((arg) => this.cost(arg));
    if (name === '_&&_' || name === '_||_') return { min: costs[0]?.min ?? 0, max: sum(...costs).max };
    if (name === '_?_:_') return this.#conditional(expr, costs);
    const on = target === undefined || namespace !== undefined ? undefined : target;
    const targetCost = on === undefined ? NOTHING : this.cost(on);
    const called = namespace === undefined ? name : `${namespace}.${name}`;
    const estimate = this.#called(called, on, args);
    if (name === '_[_]') this.#index(expr);
    else if (estimate.size !== undefined) this.#sizes.set(expr, estimate.size);
    if (name === '_+_') this.#joinEntries(expr, args);
    return sum(targetCost, ...costs, estimate.cost);
  }

  #called(name: string, target: Expr | undefined, args: readonly Expr[]): CallEstimate {
    const nodes = args.map((arg) => this.#node(arg));
    return callCost(name, target === undefined ? undefined : this.#node(target), nodes);
  }

  #node(expr: Expr): CostNode {
    return {
      type: this.#type(expr),
      size: this.#size(expr),
      literal: expr.kind === 'literal' ? expr.value : undefined,
      itemSize: this.#itemSize(expr),
    };
  }

  #itemSize(expr: Expr): Range | undefined {
    const path = this.#path(expr);
    const max = path.length === 0 ? undefined : this.#sizeAt([...path, '@items']);
    return max === undefined ? undefined : { min: 0, max };
  }

  #conditional(expr: Call, [condition = NOTHING, yes = NOTHING, no = NOTHING]: readonly Range[]): Range {
    const [, a, b] = expr.args;
    if (a !== undefined && b !== undefined) {
      this.#sizes.set(expr, union(this.#sizeOrAny(a), this.#sizeOrAny(b)));
      this.#joinEntries(expr, [a, b]);
    }
    return sum(condition, union(yes, no));
  }

  #joinEntries(expr: Expr, [a, b]: readonly Expr[]): void {
    const left = a === undefined ? undefined : this.#entriesOf(a);
    const right = b === undefined ? undefined : this.#entriesOf(b);
    if (left === undefined || right === undefined) return;
    const key = union(left.key, right.key);
    this.#entries.set(expr, { isList: left.isList, key, value: union(left.value, right.value) });
  }

  #index(expr: Call): void {
    const [operand] = expr.args;
    if (operand === undefined) return;
    const { kind } = this.#type(operand);
    if (kind === 'list' || kind === 'map') {
      this.#paths.set(expr, [...this.#path(operand), kind === 'list' ? '@items' : '@values']);
    }
    const size = this.#entriesOf(operand)?.value ?? this.#size(expr);
    if (size !== undefined) this.#sizes.set(expr, size);
  }

  #macro(expr: Call): Range | undefined {
    const { name, target, args } = expr;
    const [first, second] = args;
    if (target === undefined) {
      if (name !== 'has' || first?.kind !== 'select') return undefined;
      // `has` itself is free.
      return this.cost(first.operand);
    }
    if (name === 'bind' && target.kind === 'ident' && target.name === 'cel' && !this.#types.has(target)) {
      const body = args[2];
      if (first?.kind !== 'ident' || second === undefined || body === undefined) return undefined;
      const cost = sum(LIST, this.#bound(first.name, second, this.cost(second), body));
      this.#copySizes(expr, body);
      return cost;
    }
    if ((name === 'optMap' || name === 'optFlatMap') && first?.kind === 'ident' && second !== undefined) {
      const asked = sum(this.cost(target), ONE);
      const mapped = sum(LIST, this.#bound(first.name, undefined, sum(this.cost(target), ONE), second));
      return sum(asked, union(name === 'optMap' ? sum(mapped, ONE) : mapped, ONE));
    }
    const loop = comprehensionOf(expr);
    return loop === undefined ? undefined : this.#loop(expr, loop);
  }

  /** Estimates a body with a bound variable. `init` is the expression of the variable's value. */
  #bound(name: string, init: Expr | undefined, cost: Range, body: Expr): Range {
    const local = init === undefined ? undefined : { size: this.#size(init), entries: this.#entriesOf(init) };
    this.#locals.push({
      name,
      path: init === undefined ? [] : this.#path(init),
      size: local?.size,
      entries: local?.entries,
    });
    const inner = this.cost(body);
    this.#locals.pop();
    return sum(cost, inner);
  }

  #loop(expr: Call, { target, variables, filter, body, kind }: Comprehension): Range {
    const range = this.cost(target);
    const locals = this.#iterated(target, variables);
    this.#locals.push(...locals);
    const condition = filter === undefined ? undefined : this.cost(filter);
    const inner = this.cost(body);
    const bodySize = this.#size(body);
    this.#locals.length -= locals.length;
    const count = this.#sizeOrAny(target);
    const { start, each, end } = LOOPS[kind](inner, condition);
    if (kind === 'all' || kind === 'exists' || kind === 'existsOne') this.#sizes.set(expr, ONE);
    else {
      this.#sizes.set(expr, count);
      if (kind === 'list') {
        const value = union(NOTHING, bodySize ?? ANYTHING);
        this.#entries.set(expr, { isList: true, key: ONE, value });
      }
    }
    const sorted =
      kind === 'sorted'
        ? sum(SORTED, callCost('sort', { ...this.#node(body), type: list(this.#type(body)), size: count }, []).cost)
        : NOTHING;
    return sum(range, start, end, product(count, each), sorted);
  }

  /** Returns the loop variables of a comprehension over the value. */
  #iterated(range: Expr, variables: readonly string[]): Local[] {
    const entries = this.#entriesOf(range);
    const isList = entries?.isList ?? this.#type(range).kind === 'list';
    const path = this.#path(range);
    const key = (name: string): Local => ({
      name,
      path: [...path, isList ? '@indices' : '@keys'],
      size: entries?.key,
      entries: undefined,
    });
    const value = (name: string): Local => ({
      name,
      path: [...path, isList ? '@items' : '@values'],
      size: entries?.value,
      entries: undefined,
    });
    const [first = '', second] = variables;
    if (second !== undefined) return [key(first), value(second)];
    return [isList ? value(first) : key(first)];
  }

  #path(expr: Expr): readonly string[] {
    if (expr.kind === 'ident') {
      const local = this.#local(expr.name);
      if (local !== undefined) return local.path;
    }
    return this.#paths.get(expr) ?? [];
  }

  #sizeOrAny(expr: Expr): Range {
    return sizeOf(this.#node(expr));
  }

  #size(expr: Expr): Range | undefined {
    const computed = this.#sizes.get(expr) ?? literalSize(expr);
    if (computed !== undefined) return computed;
    const path = this.#path(expr);
    const max = path.length === 0 ? undefined : this.#sizeAt(path);
    if (max !== undefined) {
      const size = { min: 0, max };
      this.#sizes.set(expr, size);
      return size;
    }
    if (isScalar(this.#type(expr))) return ONE;
    return expr.kind === 'ident' ? this.#local(expr.name)?.size : undefined;
  }

  #entriesOf(expr: Expr): Entries | undefined {
    return this.#entries.get(expr) ?? (expr.kind === 'ident' ? this.#local(expr.name)?.entries : undefined);
  }

  #copySizes(to: Expr, from: Expr): void {
    const size = this.#size(from);
    if (size !== undefined) this.#sizes.set(to, size);
    const entries = this.#entriesOf(from);
    if (entries !== undefined) this.#entries.set(to, entries);
  }
}

/** The neutral element of a union. */
const NEUTRAL: Range = { min: Infinity, max: 0 };

function literalSize(expr: Expr): Range | undefined {
  if (expr.kind === 'list') return exactly(expr.items.length);
  if (expr.kind === 'map') return exactly(expr.entries.length);
  if (expr.kind !== 'literal') return undefined;
  const { value } = expr;
  if (typeof value === 'string') return exactly([...value].length);
  if (value instanceof Uint8Array) return exactly(value.length);
  const isPlain = value === null || ['boolean', 'bigint'].includes(typeof value);
  return isPlain || value instanceof Double || value instanceof Uint ? ONE : undefined;
}

function isScalar(type: CelType): boolean {
  return type.kind === 'optional' ? isScalar(type.of) : SCALARS.has(type.kind);
}

interface LoopCost {
  /** The cost of the initial accumulator. */
  readonly start: Range;
  /** The cost of one iteration: the loop condition and the step. */
  readonly each: Range;
  readonly end: Range;
}

const collects =
  (start: Range, step: number) =>
  (body: Range, filter: Range | undefined): LoopCost => {
    const added = sum(body, exactly(step));
    return { start, each: filter === undefined ? added : sum(filter, union(added, ONE)), end: ONE };
  };

/** The costs of the loops that macros expand to. Each access to the accumulator costs 1, as does each operator. */
const LOOPS: Readonly<Record<Comprehension['kind'], (body: Range, filter: Range | undefined) => LoopCost>> = {
  all: (body) => ({ start: NOTHING, each: sum(exactly(2), { min: 1, max: body.max + 1 }), end: ONE }),
  exists: (body) => ({ start: NOTHING, each: sum(exactly(3), { min: 1, max: body.max + 1 }), end: ONE }),
  existsOne: (body) => ({ start: NOTHING, each: sum(body, { min: 1, max: 2 }), end: exactly(2) }),
  list: collects(LIST, 12),
  map: collects(MAP, 3),
  mapEntry: collects(MAP, 2),
  sorted: collects(LIST, 12),
};
