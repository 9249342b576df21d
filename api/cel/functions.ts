/**
 * Declares CEL functions as overloads by the types of their arguments. The receiver of a method is its first argument.
 */
import type { CelType } from './types.ts';
import type { CelValue } from './values.ts';

/** Charges the budget of an evaluation. */
export interface Spending {
  /** Adds the cost to that of the evaluation. Throws `CostExceeded` if the limit is exceeded. */
  spend(cost: number): void;
}

/** One signature of a function. Arguments fit the types before `run` is called. */
export interface Overload {
  readonly args: readonly CelType[];
  readonly result: CelType;
  readonly run: (args: readonly CelValue[], spending: Spending) => CelValue;
}

/** An overload with the name under which it is called. */
export interface FunctionRow {
  readonly name: string;
  readonly isMethod: boolean;
  readonly overload: Overload;
}

// Implementations are only called with arguments that match the declared types.
type Run = (...args: never[]) => CelValue;

function overload(args: readonly CelType[], result: CelType, run: Run): Overload {
  const implementation = run as (...values: unknown[]) => CelValue;
  return { args, result, run: (values, spending) => implementation(...values, spending) };
}

/** Declares a global function. */
export function fn(name: string, args: readonly CelType[], result: CelType, run: Run): FunctionRow {
  return { name, isMethod: false, overload: overload(args, result, run) };
}

/** Declares a method; the receiver is the first argument. */
export function method(name: string, args: readonly CelType[], result: CelType, run: Run): FunctionRow {
  return { name, isMethod: true, overload: overload(args, result, run) };
}

/** Declares one implementation both as a function and as a method. */
export function both(name: string, args: readonly CelType[], result: CelType, run: Run): FunctionRow[] {
  return [fn(name, args, result, run), method(name, args, result, run)];
}

/** The overloads by name. Functions and methods are separate. */
export class FunctionTable {
  readonly #rows = new Map<string, Overload[]>();

  constructor(rows: readonly FunctionRow[]) {
    for (const { name, isMethod, overload: one } of rows) {
      const key = isMethod ? `.${name}` : name;
      const overloads = this.#rows.get(key);
      if (overloads === undefined) this.#rows.set(key, [one]);
      else overloads.push(one);
    }
  }

  /** Returns the overloads of a function or of a method, or `undefined` if there is none of this name. */
  find(name: string, { isMethod }: { readonly isMethod: boolean }): readonly Overload[] | undefined {
    return this.#rows.get(isMethod ? `.${name}` : name);
  }
}
