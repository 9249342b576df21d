/** What a part of an expression is when it has been compiled, and what it runs in. */
import type { Spending } from './functions.ts';
import type { Expr } from './parser.ts';
import type { CelType } from './types.ts';
import { CelError, type CelValue, CostExceeded, Pending } from './values.ts';

/** A run of a program: what its variables are, and what it may still spend. */
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

export type Run = (frame: Frame) => CelValue;

export interface Compiled {
  readonly type: CelType;
  readonly run: Run;
}

/** What macros and operators ask of the compiler. */
export interface ExpressionCompiler {
  compile(expr: Expr): Compiled;
  /** Compiles with more variables in scope; each has its slot among the frame's locals. */
  within<Result>(
    variables: readonly { readonly name: string; readonly type: CelType }[],
    compile: (slots: readonly number[]) => Result,
  ): Result;
  fault(at: number, message: string): Compiled;
  /** Reports what the type does not have. */
  fieldType(type: CelType, field: string, at: number): CelType;
}

/** A value, or the error that it came to; waiting and running out of budget are neither. */
export function attempt(run: Run, frame: Frame): CelValue | CelError {
  try {
    return run(frame);
  } catch (error) {
    if (error instanceof Pending || !(error instanceof CelError)) throw error;
    return error;
  }
}
