/** Defines a compiled part of an expression and the frame in which it runs. */
import type { Spending } from './functions.ts';
import type { Expr } from './parser.ts';
import type { CelType } from './types.ts';
import { CelError, type CelValue, CostExceeded, Pending } from './values.ts';

/** An evaluation of a program: the values of its variables and the rest of its budget. */
export class Frame implements Spending {
  readonly locals: CelValue[] = [];
  readonly #read: (name: string) => CelValue;
  #left: number;

  constructor(read: (name: string) => CelValue, budget: number) {
    this.#read = read;
    this.#left = budget;
  }

  get left(): number {
    return this.#left;
  }

  spend(cost: number): void {
    this.#left -= cost;
    if (this.#left < 0) throw new CostExceeded();
  }

  variable(name: string): CelValue {
    return this.#read(name);
  }
}

/** Evaluates a part. Throws a `CelError`, `CostExceeded`, or `Pending` if a value is not available yet. */
export type Run = (frame: Frame) => CelValue;

/** A part of an expression with its static type. */
export interface Compiled {
  readonly type: CelType;
  readonly run: Run;
  /** The value of a literal, or of a conversion of one. */
  readonly constant?: CelValue;
}

/** The part of the compiler that macros and operators use. */
export interface ExpressionCompiler {
  /** Whether the macro `cel.bind` is declared. */
  readonly bindings: boolean;
  compile(expr: Expr): Compiled;
  /** Compiles with additional variables in scope. Each variable gets a slot in the frame's locals. */
  within<Result>(
    variables: readonly { readonly name: string; readonly type: CelType }[],
    compile: (slots: readonly number[]) => Result,
  ): Result;
  /** Reports a compile error. Returns a part that stands in place of what could not be compiled. */
  fault(at: number, message: string): Compiled;
  /** Reports that a constant part of the expression has no value. */
  failConstant(message: string): void;
  /** Returns the type of a field. Reports a compile error if the type has no such field. */
  fieldType(type: CelType, field: string, at: number): CelType;
}

/** Returns the value or the `CelError`. Does not catch `Pending` and `CostExceeded`. */
export function attempt(run: Run, frame: Frame): CelValue | CelError {
  try {
    return run(frame);
  } catch (error) {
    if (error instanceof Pending || !(error instanceof CelError)) throw error;
    return error;
  }
}
