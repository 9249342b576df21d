/**
 * Compiles CEL expressions against declared variables, and evaluates them within a cost budget.
 *
 * Compile errors have cel-go's format: `ERROR: <input>:1:6: …`.
 */
import { authorizerFunctions } from './authorizer.ts';
import { collectionFunctions } from './collections.ts';
import { type Compiled, Frame } from './compiled.ts';
import { Compiler, type Fault } from './compiler.ts';
import { estimateCost, type SizeAt } from './cost-estimate.ts';
import { type FunctionRow, FunctionTable } from './functions.ts';
import { kubernetesFunctions, patchFunctions } from './kubernetes.ts';
import { CelSyntaxError } from './lexer.ts';
import { codePoints, operators } from './operators.ts';
import { literalFaults } from './literal-checks.ts';
import { type Expr, parse } from './parser.ts';
import { stringFunctions } from './strings.ts';
import { timeFunctions } from './time.ts';
import { type CelType, dyn } from './types.ts';
import { adapt, type CelValue, CostExceeded, Pending } from './values.ts';

/** The cost limit of one evaluation. */
const CALL_BUDGET = 1_000_000;

/** The maximum number of faults in a message. Each quotes its line, so many faults in a long line would fill the memory. */
const MAX_FAULTS = 100;
const MAX_CODE_POINTS = 100_000;

/** Parts of the language that are declared for some expressions only. */
interface CelLibraries {
  /** The macro `cel.bind`, which Kubernetes declares for the selectors of devices alone. */
  readonly bindings?: boolean;
  /** The functions of `jsonpatch`, which Kubernetes declares for mutating policies alone. */
  readonly jsonPatch?: boolean;
}

/** What expressions may refer to. */
export interface CelEnvironment {
  readonly libraries?: CelLibraries;
  readonly variables: Readonly<Record<string, CelType>>;
  /** Returns the message types that expressions can construct (`Object{…}`), by name. */
  readonly message?: (name: string) => CelType | undefined;
  /** Returns the maximum sizes of variables. With it, compiled programs have a cost estimate. */
  readonly sizeAt?: SizeAt;
}

/** A budget that several expressions share. */
export interface Budget {
  left: number;
}

/** A compiled expression. It has no state, so that evaluations may overlap. */
export interface Program {
  readonly source: string;
  readonly type: CelType;
  /** The names of the variables that the expression reads. */
  readonly references: ReadonlySet<string>;
  /** The estimated maximum cost, if the environment declares the sizes of variables. */
  readonly maxCost: number | undefined;
  /**
   * Evaluates the expression. `bindings` returns a variable's value: JSON or a CEL value. Throws `CelError`,
   * `CostExceeded` and `Pending`.
   */
  run(bindings: (name: string) => unknown, budget?: Budget): CelValue;
}

/** The error of an expression that is not valid. */
export class CelCompileError extends Error {
  /** `program instantiation` if the types are right, but a part that is constant has no value. */
  readonly stage: 'compilation' | 'program instantiation';

  constructor(message: string, options: { readonly stage?: CelCompileError['stage']; readonly cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.stage = options.stage ?? 'compilation';
  }

  /** The message as kube-apiserver shows it: `compilation failed: ERROR: …`. */
  get reason(): string {
    return `${this.stage} failed: ${this.message}`;
  }
}

const FUNCTIONS: readonly FunctionRow[] = [
  ...operators,
  ...timeFunctions,
  ...stringFunctions,
  ...collectionFunctions,
  ...kubernetesFunctions,
  ...authorizerFunctions,
];

let functions: FunctionTable | undefined;
let functionsWithPatches: FunctionTable | undefined;

function functionsOf(libraries: CelLibraries): FunctionTable {
  if (libraries.jsonPatch !== true) return (functions ??= new FunctionTable(FUNCTIONS));
  return (functionsWithPatches ??= new FunctionTable([...FUNCTIONS, ...patchFunctions]));
}

/** Parses and checks an expression. Throws `CelCompileError`. */
export function compile(source: string, environment: CelEnvironment): Program {
  const size = codePoints(source);
  if (size > MAX_CODE_POINTS) {
    throw new CelCompileError(
      `ERROR: <input>:-1:0: expression code point size exceeds limit: size: ${size}, limit ${MAX_CODE_POINTS}`,
    );
  }
  const { libraries = {}, variables, message } = environment;
  const compiler = new Compiler({
    variables,
    functions: functionsOf(libraries),
    message,
    bindings: libraries.bindings,
  });
  let compiled: Compiled;
  let expr: Expr;
  try {
    expr = parse(source);
    compiled = compiler.compile(expr);
  } catch (error) {
    // A long chain of operators is a deep tree and can exhaust the stack.
    if (error instanceof RangeError) {
      throw new CelCompileError(faultText('', { at: 0, message: 'expression recursion limit exceeded' }), {
        cause: error,
      });
    }
    if (!(error instanceof CelSyntaxError)) throw error;
    throw new CelCompileError(faultTexts(source, error.faults), { cause: error });
  }
  if (compiler.faults.length > 0) {
    throw new CelCompileError(faultTexts(source, compiler.faults));
  }
  const wrong = literalFaults(expr, (part) => compiler.types.get(part) ?? dyn);
  if (wrong.length > 0) throw new CelCompileError(faultTexts(source, wrong));
  const { constantError } = compiler;
  if (constantError !== undefined) throw new CelCompileError(constantError, { stage: 'program instantiation' });
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
      let isPending = false;
      try {
        return run(frame);
      } catch (error) {
        isPending = error instanceof Pending;
        // An expression that exhausts the stack counts as too expensive.
        if (error instanceof RangeError) throw new CostExceeded();
        if (error instanceof CostExceeded && limit < CALL_BUDGET) throw new CostExceeded({ ofBudget: true });
        throw error;
      } finally {
        if (budget !== undefined && !isPending) budget.left -= limit - Math.max(0, frame.left);
      }
    },
  };
}

/**
 * Evaluates like `run`, and again after each pending value. The budget is charged for the last evaluation. The cost of a check
 * bounds how many there are.
 */
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

function faultTexts(source: string, faults: readonly Fault[]): string {
  const sorted = faults.toSorted((a, b) => a.at - b.at);
  const shown = sorted.slice(0, MAX_FAULTS).map((fault) => faultText(source, fault));
  const more = faults.length - shown.length;
  return `${shown.join('\n')}${more > 0 ? `\n${more} more errors were truncated` : ''}`;
}

/** Returns the dot or mark below a character, in the wide form below one that is more than one byte long. */
const mark = (char: string, narrow: string, wide: string): string => (char > '\u007f' ? wide : narrow);

function faultText(source: string, { at, message }: Fault): string {
  if (source === '') return `ERROR: <input>:1:0: ${message}`;
  const before = source.slice(0, at);
  const line = before.split('\n').length;
  const passed = [...before.slice(before.lastIndexOf('\n') + 1)];
  const text = (source.split('\n')[line - 1] ?? '').replaceAll('\t', ' ');
  const dots = passed.map((char) => mark(char, '.', '\uff0e')).join('');
  const caret = mark(source.slice(at, at + 1), '^', '\uff3e');
  return `ERROR: <input>:${line}:${passed.length + 1}: ${message}\n | ${text}\n | ${dots}${caret}`;
}
