/**
 * Expressions in CEL: compiled once against declared variables, evaluated often within a budget.
 *
 * Compile errors read as the reference's (`ERROR: <input>:1:6: …` with the line and a mark below it); what goes wrong while
 * an expression runs is a `CelError` with a short text. Rules of custom resources, admission policies and match conditions
 * use this.
 */
import { authorizerFunctions } from './authorizer.ts';
import { collectionFunctions } from './collections.ts';
import { type Compiled, Frame } from './compiled.ts';
import { Compiler, type Fault } from './compiler.ts';
import { estimateCost, type SizeAt } from './cost-estimate.ts';
import { FunctionTable } from './functions.ts';
import { kubernetesFunctions } from './kubernetes.ts';
import { CelSyntaxError } from './lexer.ts';
import { operators } from './operators.ts';
import { type Expr, parse } from './parser.ts';
import { stringFunctions } from './strings.ts';
import { timeFunctions } from './time.ts';
import type { CelType } from './types.ts';
import { adapt, type CelValue, CostExceeded, Pending } from './values.ts';

/** What one expression may cost. */
const CALL_BUDGET = 1_000_000;

/** Each shows the line that it is in: a long line with many faults would fill the memory. */
const MAX_FAULTS = 100;
const MAX_SOURCE_LENGTH = 100_000;

export interface CelEnvironment {
  readonly variables: Readonly<Record<string, CelType>>;
  /** Types that can be built (`Object{…}`), by name. */
  readonly message?: (name: string) => CelType | undefined;
  /** How large variables may be; a program that was compiled with it knows what it costs at most. */
  readonly sizeAt?: SizeAt;
}

/** Shared by expressions that have one budget together. */
export interface Budget {
  left: number;
}

export interface Program {
  readonly source: string;
  readonly type: CelType;
  /** Variables that the expression reads. */
  readonly references: ReadonlySet<string>;
  /** Estimated, where the environment says how large variables may be. */
  readonly maxCost: number | undefined;
  /** `bindings` gives a variable's value: JSON or a CEL value. Throws `CelError`, `CostExceeded` and `Pending`. */
  run(bindings: (name: string) => unknown, budget?: Budget): CelValue;
}

export class CelCompileError extends Error {}

let functions: FunctionTable | undefined;

/** Throws `CelCompileError`. */
export function compile(source: string, environment: CelEnvironment): Program {
  if (source.length > MAX_SOURCE_LENGTH) {
    throw new CelCompileError(
      `ERROR: <input>:-1:0: expression code point size exceeds limit: size: ${source.length}, limit ${MAX_SOURCE_LENGTH}`,
    );
  }
  functions ??= new FunctionTable([
    ...operators,
    ...timeFunctions,
    ...stringFunctions,
    ...collectionFunctions,
    ...kubernetesFunctions,
    ...authorizerFunctions,
  ]);
  const compiler = new Compiler({ variables: environment.variables, functions, message: environment.message });
  let compiled: Compiled;
  let expr: Expr;
  try {
    expr = parse(source);
    compiled = compiler.compile(expr);
  } catch (error) {
    // A chain of operators is as deep as it is long.
    if (error instanceof RangeError) {
      throw new CelCompileError(faultText('', { at: 0, message: 'expression recursion limit exceeded' }), {
        cause: error,
      });
    }
    if (!(error instanceof CelSyntaxError)) throw error;
    throw new CelCompileError(faultText(source, { at: error.at, message: error.message }), { cause: error });
  }
  if (compiler.faults.length > 0) {
    const shown = compiler.faults.slice(0, MAX_FAULTS).map((fault) => faultText(source, fault));
    const more = compiler.faults.length - shown.length;
    throw new CelCompileError(`${shown.join('\n')}${more > 0 ? `\n${more} more errors were truncated` : ''}`);
  }
  const { type, run } = compiled;
  const { sizeAt } = environment;
  return {
    source,
    type,
    references: compiler.references,
    maxCost: sizeAt === undefined ? undefined : estimateCost({ expr, types: compiler.types }, sizeAt).max,
    run(bindings, budget) {
      const limit = Math.min(CALL_BUDGET, budget?.left ?? CALL_BUDGET);
      const frame = new Frame((name) => adapt(bindings(name)), limit);
      try {
        return run(frame);
      } catch (error) {
        // Deep recursion is a matter of cost too.
        if (error instanceof RangeError) throw new CostExceeded();
        throw error;
      } finally {
        if (budget !== undefined) budget.left -= limit - Math.max(0, frame.left);
      }
    },
  };
}

/** As `run`; waits for what the expression asks others for. */
export async function runWaiting(
  program: Program,
  bindings: (name: string) => unknown,
  budget?: Budget,
): Promise<CelValue> {
  for (;;) {
    try {
      return program.run(bindings, budget);
    } catch (error) {
      if (!(error instanceof Pending)) throw error;
      await error.settled;
    }
  }
}

function faultText(source: string, { at, message }: Fault): string {
  const before = source.slice(0, at);
  const line = before.split('\n').length;
  const column = at - (before.lastIndexOf('\n') + 1);
  const text = (source.split('\n')[line - 1] ?? '').replaceAll('\t', ' ');
  return `ERROR: <input>:${line}:${column + 1}: ${message}\n | ${text}\n | ${'.'.repeat(column)}^`;
}
