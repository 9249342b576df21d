/**
 * Type-checks an expression and compiles it to functions, in one pass over its tree. A part whose type is not known at compile
 * time (`dyn`) is checked at run time.
 *
 * Operations have costs, and a run stops when its budget is exhausted, so that no expression can block the server.
 */
import type { Compiled, ExpressionCompiler, Frame } from './compiled.ts';
import type { FunctionTable } from './functions.ts';
import { compileMacro } from './macros.ts';
import { TYPE_NAMES } from './operators.ts';
import { dottedName, type Expr } from './parser.ts';
import { coerce, coerced, keyOf, literalType, selected } from './value-access.ts';
import {
  type CelType,
  dyn,
  errorType,
  fits,
  isOpen,
  join,
  list,
  map,
  optional,
  showType,
  typeOfType,
  unbound,
} from './types.ts';
import { CelError, type CelMap, type CelValue, MessageValue, Optional, TypeValue } from './values.ts';
import { compileOverloads, compilePattern, PATTERN_FUNCTIONS } from './compile-call.ts';
import { compileOperator } from './compile-operators.ts';

/** A compile error at an offset in the source. */
export interface Fault {
  readonly at: number;
  readonly message: string;
}

interface Declarations {
  readonly variables: Readonly<Record<string, CelType>>;
  readonly functions: FunctionTable;
  /** Returns the message types that expressions can construct: `Object{…}`. */
  readonly message?: ((name: string) => CelType | undefined) | undefined;
  /** Whether the macro `cel.bind` is declared. */
  readonly bindings?: boolean | undefined;
}

/** Compiles one expression. After `compile`, the fields have what was found in it. */
export class Compiler implements ExpressionCompiler {
  readonly faults: Fault[] = [];
  /** The names of the variables that the expression reads. */
  readonly references = new Set<string>();
  /** The types of all parts of the expression that are values. */
  readonly types = new Map<Expr, CelType>();
  /** The first error of a constant part, if there is one. */
  constantError: string | undefined;
  readonly bindings: boolean;
  readonly #declarations: Declarations;
  readonly #scope: { readonly name: string; readonly type: CelType; readonly slot: number }[] = [];
  #slots = 0;

  constructor(declarations: Declarations) {
    this.#declarations = declarations;
    this.bindings = declarations.bindings === true;
  }

  /** Compiles with additional variables in scope. Each variable gets a slot in the frame's locals. */
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

  failConstant(message: string): void {
    this.constantError ??= message;
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
        return { type: literalType(value), run: () => value, constant: value };
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
    const named = TYPE_NAMES.get(name);
    if (named !== undefined) {
      const value = new TypeValue(name);
      return { type: typeOfType(named), run: () => value };
    }
    return this.fault(at, `undeclared reference to '${name}' (in container '')`);
  }

  #select(expr: Extract<Expr, { kind: 'select' }>): Compiled {
    const { field, at } = expr;
    const typeName = this.#typeNameOf(expr);
    if (typeName !== undefined) {
      const value = new TypeValue(typeName);
      return { type: typeOfType(TYPE_NAMES.get(typeName) ?? dyn), run: () => value };
    }
    const operand = this.compile(expr.operand);
    const through = operand.type.kind === 'optional';
    const type = this.fieldType(operand.type.kind === 'optional' ? operand.type.of : operand.type, field, at);
    const read = (frame: Frame): CelValue | undefined => {
      const value = operand.run(frame);
      frame.spend(1);
      if (!(value instanceof Optional)) return selected(value, field);
      return value.value === undefined ? undefined : selected(value.value, field);
    };
    if (expr.optional || through) {
      return {
        type: optional(type.kind === 'error' && operand.type.kind !== 'object' ? dyn : type),
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
          const inner = value.value === undefined ? undefined : selected(value.value, field);
          return new Optional(inner);
        }
        const found = selected(value, field);
        if (found === undefined) throw new CelError(`no such key: ${field}`);
        return found;
      }),
    };
  }

  /** Returns the name of a type whose name has dots. */
  #typeNameOf(expr: Expr): string | undefined {
    const name = dottedName(expr, MAX_PARTS);
    return name !== undefined && TYPE_NAMES.has(name) && !this.#isVariable(name) ? name : undefined;
  }

  /** Returns the type of a field. Reports a compile error if the type has no such field. */
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
      const memberType = OPAQUE_MEMBERS.get(`${type.name}.${field}`);
      if (memberType !== undefined) return memberType;
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
    for (const { type, isOptional, at } of compiled) item = joined(item, isOptional ? this.#present(type, at) : type);
    return {
      type: list(item ?? unbound),
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

  /** Returns the type of the value of an optional element. */
  #present(type: CelType, at: number): CelType {
    if (type.kind === 'optional') return type.of;
    if (!isOpen(type)) this.fault(at, `expected type '${showType(optional(type))}' but found '${showType(type)}'`);
    return type;
  }

  #map(entries: Extract<Expr, { kind: 'map' }>['entries']): Compiled {
    const compiled = entries.map((entry) => ({
      key: this.compile(entry.key),
      value: this.compile(entry.value),
      isOptional: entry.optional,
      valueAt: entry.value.at,
    }));
    let key: CelType | undefined;
    let value: CelType | undefined;
    for (const entry of compiled) {
      key = joined(key, entry.key.type);
      const { type } = entry.value;
      value = joined(value, entry.isOptional ? this.#present(type, entry.valueAt) : type);
    }
    return {
      type: map(key ?? unbound, value ?? unbound),
      run(frame) {
        frame.spend(30);
        const built: CelMap = new Map();
        for (const entry of compiled) {
          const name = keyOf(entry.key.run(frame));
          const inner = entry.value.run(frame);
          if (built.has(name)) throw new CelError(`insert failed: key ${String(name)} already exists`);
          if (!entry.isOptional || !(inner instanceof Optional)) built.set(name, inner);
          else if (inner.value !== undefined) built.set(name, inner.value);
        }
        return built;
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
        const built = new Map<string, CelValue>();
        for (const field of compiled) {
          const value = field.value.run(frame);
          if (!field.isOptional || !(value instanceof Optional)) built.set(field.name, value);
          else if (value.value !== undefined) built.set(field.name, value.value);
        }
        return new MessageValue(name, built);
      },
    };
  }

  #call(expr: Extract<Expr, { kind: 'call' }>): Compiled {
    const { name, target, at } = expr;
    if (target === undefined) {
      const special = compileOperator(this, expr);
      if (special !== undefined) return special;
    }
    const qualified = target === undefined ? undefined : namespaced(target, name);
    const { functions } = this.#declarations;
    const asFunction =
      qualified !== undefined && !this.#isVariable(qualified)
        ? functions.find(qualified, { isMethod: false })
        : undefined;
    const isMethod = target !== undefined && asFunction === undefined;
    // The error of a method that is called as a function, or the reverse, is that no overload matches.
    const overloads =
      asFunction ?? functions.find(name, { isMethod }) ?? (functions.find(name, { isMethod: !isMethod }) && []);
    const all = isMethod ? [target, ...expr.args] : expr.args;
    const args = all.map((arg, index) => {
      const compiled = this.compile(arg);
      return index === 1 && PATTERN_FUNCTIONS.has(name) ? compilePattern(this, compiled) : compiled;
    });
    if (overloads === undefined) return this.fault(at, `undeclared reference to '${name}' (in container '')`);
    return compileOverloads(
      this,
      { name: asFunction === undefined ? name : (qualified ?? name), isMethod, at, overloads },
      args,
    );
  }

  #isVariable(qualified: string): boolean {
    const root = qualified.split('.')[0] ?? '';
    return this.#scope.some(({ name }) => name === root) || Object.hasOwn(this.#declarations.variables, root);
  }
}

/** The maximum number of parts of the name of a type. */
const MAX_PARTS = 3;

/** The members of library values. */
const OPAQUE_MEMBERS: ReadonlyMap<string, CelType> = new Map(
  Object.entries({
    'kubernetes.authorization.Authorizer.requestResource': {
      kind: 'opaque',
      name: 'kubernetes.authorization.ResourceCheck',
    },
  }),
);

/** Merges the type of an element into the type of its list or map. */
const joined = (before: CelType | undefined, type: CelType): CelType =>
  before === undefined || fits(before, type) ? join(before, type) : dyn;

/** Returns the full name of a function whose name contains a dot, such as `ip.isCanonical`. */
function namespaced(target: Expr, name: string): string | undefined {
  if (target.kind === 'ident') return `${target.name}.${name}`;
  return undefined;
}
