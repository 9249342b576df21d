/**
 * Checks the types of an expression and turns it into functions, in one pass over its tree. Errors are collected with
 * their places; what is not known before it runs (`dyn`) is checked then.
 *
 * Every step costs: a run stops when its budget is spent, so that no expression holds the server up.
 */
import { attempt, type Compiled, type ExpressionCompiler, type Frame } from './compiled.ts';
import type { FunctionTable, Overload } from './functions.ts';
import { literalFault } from './literal-checks.ts';
import { compileMacro } from './macros.ts';
import { TYPE_NAMES } from './operators.ts';
import type { Expr } from './parser.ts';
import { coerce, coerced, extent, itemAt, keyOf, literalType, selectable, shownKey } from './value-access.ts';
import {
  bool,
  type CelType,
  dyn,
  errorType,
  fits,
  int,
  isOpen,
  join,
  list,
  map,
  optional,
  showType,
  substitute,
  typeType,
} from './types.ts';
import {
  adapt,
  CelError,
  type CelMap,
  type CelValue,
  equal,
  hasType,
  member,
  MessageValue,
  Optional,
  TypeValue,
} from './values.ts';

export interface Fault {
  readonly at: number;
  readonly message: string;
}

export interface Declarations {
  readonly variables: Readonly<Record<string, CelType>>;
  readonly functions: FunctionTable;
  /** Types that can be built: `Object{…}`. */
  readonly message?: ((name: string) => CelType | undefined) | undefined;
}

export class Compiler implements ExpressionCompiler {
  readonly faults: Fault[] = [];
  /** Variables that are read. */
  readonly references = new Set<string>();
  /** Of every part of the expression that is a value. */
  readonly types = new Map<Expr, CelType>();
  readonly #declarations: Declarations;
  readonly #scope: { readonly name: string; readonly type: CelType; readonly slot: number }[] = [];
  #slots = 0;

  constructor(declarations: Declarations) {
    this.#declarations = declarations;
  }

  /** Compiles with more variables in scope; each has its slot among the frame's locals. */
  within<Result>(
    variables: readonly { readonly name: string; readonly type: CelType }[],
    compile: (slots: readonly number[]) => Result,
  ): Result {
    const slots = variables.map(({ name, type }) => {
      const slot = this.#slots++;
      this.#scope.push({ name, type, slot });
      return slot;
    });
    const result = compile(slots);
    this.#scope.length -= variables.length;
    return result;
  }

  fault(at: number, message: string): Compiled {
    this.faults.push({ at, message });
    return {
      type: errorType,
      run: () => {
        throw new CelError(message);
      },
    };
  }

  compile(expr: Expr): Compiled {
    const compiled = this.#compile(expr);
    this.types.set(expr, compiled.type);
    return compiled;
  }

  #compile(expr: Expr): Compiled {
    switch (expr.kind) {
      case 'literal': {
        const { value } = expr;
        return { type: literalType(value), run: () => value };
      }
      case 'ident':
        return this.#ident(expr.name, expr.at);
      case 'select':
        return this.#select(expr);
      case 'list':
        return this.#list(expr.items);
      case 'map':
        return this.#map(expr.entries);
      case 'message':
        return this.#message(expr);
      case 'call':
        return compileMacro(this, expr) ?? this.#call(expr);
    }
  }

  #ident(name: string, at: number): Compiled {
    const local = this.#scope.findLast((one) => one.name === name);
    if (local !== undefined) {
      const { slot, type } = local;
      return {
        type,
        run: coerced(type, (frame) => {
          frame.spend(1);
          return frame.locals[slot] ?? null;
        }),
      };
    }
    const { variables } = this.#declarations;
    const declared = Object.hasOwn(variables, name) ? variables[name] : undefined;
    if (declared !== undefined) {
      this.references.add(name);
      return {
        type: declared,
        run: coerced(declared, (frame) => {
          frame.spend(1);
          return frame.variable(name);
        }),
      };
    }
    if (Object.hasOwn(TYPE_NAMES, name)) {
      const value = new TypeValue(name);
      return { type: typeType, run: () => value };
    }
    return this.fault(at, `undeclared reference to '${name}' (in container '')`);
  }

  #select(expr: Extract<Expr, { kind: 'select' }>): Compiled {
    const { field, at } = expr;
    const operand = this.compile(expr.operand);
    const through = operand.type.kind === 'optional';
    const type = this.fieldType(operand.type.kind === 'optional' ? operand.type.of : operand.type, field, at);
    const read = (frame: Frame): CelValue | undefined => {
      const value = operand.run(frame);
      frame.spend(1);
      if (!(value instanceof Optional)) return selectable(value, field);
      return value.value === undefined ? undefined : selectable(value.value, field);
    };
    if (expr.optional || through) {
      return {
        type: optional(type),
        run: (frame) => {
          const value = read(frame);
          return new Optional(value === undefined ? undefined : coerce(type, value));
        },
      };
    }
    return {
      type,
      run: coerced(type, (frame) => {
        const value = operand.run(frame);
        frame.spend(1);
        if (value instanceof Optional) {
          const inner = value.value === undefined ? undefined : selectable(value.value, field);
          return new Optional(inner);
        }
        const found = selectable(value, field);
        if (found === undefined) throw new CelError(`no such key: ${field}`);
        return found;
      }),
    };
  }

  /** Reports what the type does not have. */
  fieldType(type: CelType, field: string, at: number): CelType {
    if (isOpen(type)) return dyn;
    if (type.kind === 'map') return type.value;
    if (type.kind === 'object') {
      const found = type.field(field);
      if (found !== undefined) return found;
      this.fault(at, `undefined field '${field}'`);
      return errorType;
    }
    if (type.kind === 'opaque') {
      const known = OPAQUE_MEMBERS[`${type.name}.${field}`];
      if (known !== undefined) return known;
      this.fault(at, `type '${type.name}' does not support field selection`);
      return errorType;
    }
    this.fault(at, `type '${showType(type)}' does not support field selection`);
    return errorType;
  }

  #list(items: Extract<Expr, { kind: 'list' }>['items']): Compiled {
    const compiled = items.map(({ value, optional: isOptional }) => ({
      ...this.compile(value),
      isOptional,
      at: value.at,
    }));
    let item: CelType | undefined;
    for (const { type, isOptional, at } of compiled) {
      item = this.#joined(item, isOptional && type.kind === 'optional' ? type.of : type, at);
    }
    return {
      type: list(item ?? dyn),
      run(frame) {
        frame.spend(10);
        const values: CelValue[] = [];
        for (const { run, isOptional } of compiled) {
          const value = run(frame);
          if (!isOptional || !(value instanceof Optional)) values.push(value);
          else if (value.value !== undefined) values.push(value.value);
        }
        return values;
      },
    };
  }

  /** What a list or a map is made of has one type. */
  #joined(before: CelType | undefined, type: CelType, at: number): CelType {
    if (before === undefined || fits(before, type) || fits(type, before)) return join(before, type);
    this.fault(at, `expected type '${showType(before)}' but found '${showType(type)}'`);
    return errorType;
  }

  #map(entries: Extract<Expr, { kind: 'map' }>['entries']): Compiled {
    const compiled = entries.map((entry) => ({
      key: this.compile(entry.key),
      value: this.compile(entry.value),
      isOptional: entry.optional,
      keyAt: entry.key.at,
      valueAt: entry.value.at,
    }));
    let key: CelType | undefined;
    let value: CelType | undefined;
    for (const entry of compiled) {
      key = this.#joined(key, entry.key.type, entry.keyAt);
      const { type } = entry.value;
      value = this.#joined(value, entry.isOptional && type.kind === 'optional' ? type.of : type, entry.valueAt);
    }
    return {
      type: map(key ?? dyn, value ?? dyn),
      run(frame) {
        frame.spend(30);
        const made: CelMap = new Map();
        for (const entry of compiled) {
          const name = keyOf(entry.key.run(frame));
          const inner = entry.value.run(frame);
          if (made.has(name)) throw new CelError(`insert failed: key ${String(name)} already exists`);
          if (!entry.isOptional || !(inner instanceof Optional)) made.set(name, inner);
          else if (inner.value !== undefined) made.set(name, inner.value);
        }
        return made;
      },
    };
  }

  #message({ name, fields, at }: Extract<Expr, { kind: 'message' }>): Compiled {
    const type = this.#declarations.message?.(name);
    if (type === undefined) return this.fault(at, `undeclared reference to '${name}' (in container '')`);
    const compiled = fields.map((field) => {
      const value = this.compile(field.value);
      const wanted = this.fieldType(type, field.name, field.at);
      const given = field.optional && value.type.kind === 'optional' ? value.type.of : value.type;
      if (!fits(wanted, given)) {
        this.fault(
          field.at,
          `expected type of field '${field.name}' is '${showType(wanted)}' but provided type is '${showType(given)}'`,
        );
      }
      return { name: field.name, value, isOptional: field.optional };
    });
    return {
      type,
      run(frame) {
        frame.spend(40);
        const made = new Map<string, CelValue>();
        for (const field of compiled) {
          const value = field.value.run(frame);
          if (!field.isOptional || !(value instanceof Optional)) made.set(field.name, value);
          else if (value.value !== undefined) made.set(field.name, value.value);
        }
        return new MessageValue(name, made);
      },
    };
  }

  #call(expr: Extract<Expr, { kind: 'call' }>): Compiled {
    const { name, target, at } = expr;
    if (target === undefined) {
      const special = this.#operator(expr);
      if (special !== undefined) return special;
    }
    const qualified = target === undefined ? undefined : namespaced(target, name);
    const { functions } = this.#declarations;
    const asFunction =
      qualified !== undefined && !this.#isVariable(qualified) ? functions.find(qualified, false) : undefined;
    const isMethod = target !== undefined && asFunction === undefined;
    const overloads = asFunction ?? functions.find(name, isMethod);
    const all = isMethod ? [target, ...expr.args] : expr.args;
    const args = all.map((arg) => this.compile(arg));
    if (overloads === undefined) return this.fault(at, `undeclared reference to '${name}' (in container '')`);
    const wrong = literalFault(expr);
    if (wrong !== undefined) this.fault(wrong.at, wrong.message);
    return this.#overloaded(name, overloads, args, { isMethod, at });
  }

  #isVariable(qualified: string): boolean {
    const root = qualified.split('.')[0] ?? '';
    return this.#scope.some(({ name }) => name === root) || Object.hasOwn(this.#declarations.variables, root);
  }

  #overloaded(
    name: string,
    overloads: readonly Overload[],
    args: readonly Compiled[],
    { isMethod, at }: { readonly isMethod: boolean; readonly at: number },
  ): Compiled {
    let result: CelType | undefined;
    const candidates = overloads.filter(({ args: wanted, result: given }) => {
      if (wanted.length !== args.length) return false;
      const bound = new Map<string, CelType>();
      if (!wanted.every((type, index) => fits(type, args[index]?.type ?? dyn, bound))) return false;
      result = join(result, substitute(given, bound));
      return true;
    });
    const types = args.map(({ type }) => showType(type));
    if (candidates.length === 0) {
      if (args.some(({ type }) => type.kind === 'error')) return { type: errorType, run: () => null };
      const shown = isMethod ? `${types[0] ?? ''}.(${types.slice(1).join(', ')})` : `(${types.join(', ')})`;
      return this.fault(at, `found no matching overload for '${name}' applied to '${shown}'`);
    }
    const [first] = candidates;
    const known = candidates.length === 1 && args.every(({ type }) => !isOpen(type));
    const runs = args.map(({ run }) => run);
    return {
      type: result ?? dyn,
      run(frame) {
        frame.spend(1);
        const values = runs.map((run) => run(frame));
        const chosen = known
          ? first
          : candidates.find(({ args: wanted }) => wanted.every((type, index) => hasType(values[index] ?? null, type)));
        if (chosen === undefined) throw new CelError('no such overload');
        return chosen.run(values, frame);
      },
    };
  }

  /** What looks at its arguments in its own way. */
  #operator({ name, args, at }: Extract<Expr, { kind: 'call' }>): Compiled | undefined {
    const [a, b, c] = args;
    if (a === undefined || b === undefined) return undefined;
    switch (name) {
      case '_&&_':
      case '_||_':
        return this.#logical(name, this.compile(a), this.compile(b), at);
      case '_?_:_':
        return c === undefined ? undefined : this.#conditional(this.compile(a), this.compile(b), this.compile(c), at);
      case '_==_':
      case '_!=_':
        return this.#equality(name, this.compile(a), this.compile(b), at);
      case '@in':
        return this.#contained(this.compile(a), this.compile(b), at);
      case '_[_]':
      case '_[?_]':
        return this.#index(name, this.compile(a), this.compile(b), at);
      default:
        return undefined;
    }
  }

  #mismatch(name: string, args: readonly Compiled[], at: number): Compiled {
    if (args.some(({ type }) => type.kind === 'error')) return { type: errorType, run: () => null };
    const types = args.map(({ type }) => showType(type)).join(', ');
    return this.fault(at, `found no matching overload for '${name}' applied to '(${types})'`);
  }

  #logical(name: string, a: Compiled, b: Compiled, at: number): Compiled {
    if (!fits(bool, a.type) || !fits(bool, b.type)) return this.#mismatch(name, [a, b], at);
    // One side decides whatever the other would come to, even to an error.
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

  #conditional(condition: Compiled, yes: Compiled, no: Compiled, at: number): Compiled {
    if (!fits(bool, condition.type) || !(fits(yes.type, no.type) || fits(no.type, yes.type))) {
      return this.#mismatch('_?_:_', [condition, yes, no], at);
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

  #equality(name: string, a: Compiled, b: Compiled, at: number): Compiled {
    if (!fits(a.type, b.type) && !fits(b.type, a.type)) return this.#mismatch(name, [a, b], at);
    const wanted = name === '_==_';
    return {
      type: bool,
      run(frame) {
        const [left, right] = [a.run(frame), b.run(frame)];
        frame.spend(1 + Math.ceil(Math.min(extent(left), extent(right)) / 10));
        return equal(left, right) === wanted;
      },
    };
  }

  #contained(item: Compiled, where: Compiled, at: number): Compiled {
    const { type } = where;
    const ok =
      isOpen(type) ||
      (type.kind === 'list' && (fits(type.item, item.type) || fits(item.type, type.item))) ||
      (type.kind === 'map' && fits(type.key, item.type));
    if (!ok) return this.#mismatch('@in', [item, where], at);
    return {
      type: bool,
      run(frame) {
        const [value, within] = [item.run(frame), where.run(frame)];
        if (!Array.isArray(within)) {
          frame.spend(1);
          if (!hasType(within, map(dyn, dyn))) throw new CelError('no such overload');
          return member(within, value) !== undefined;
        }
        frame.spend(1 + within.length);
        return within.some((one) => equal(adapt(one), value));
      },
    };
  }

  #index(name: string, operand: Compiled, key: Compiled, at: number): Compiled {
    const through = operand.type.kind === 'optional';
    const type = operand.type.kind === 'optional' ? operand.type.of : operand.type;
    let inner: CelType;
    if (isOpen(type)) inner = dyn;
    else if (type.kind === 'list' && (fits(int, key.type) || key.type.kind === 'uint')) inner = type.item;
    else if (type.kind === 'map' && fits(type.key, key.type)) inner = type.value;
    else return this.#mismatch(name, [operand, key], at);
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
}

/** Members that values of libraries have. */
const OPAQUE_MEMBERS: Readonly<Record<string, CelType>> = {
  'kubernetes.authorization.Authorizer.requestResource': {
    kind: 'opaque',
    name: 'kubernetes.authorization.ResourceCheck',
  },
};

/** `ip.isCanonical` and the like are functions with a dot in their names. */
function namespaced(target: Expr, name: string): string | undefined {
  if (target.kind === 'ident') return `${target.name}.${name}`;
  return undefined;
}
