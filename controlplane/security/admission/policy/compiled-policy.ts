/** Compiles the expressions of policies. Each version of a policy is compiled once. */
import { quoteText } from '../../../../api/meta/quote.ts';
import { PATCH_DECLARATIONS, struct } from '../../../../api/cel/admission-variables.ts';
import { type CelEnvironment, CelCompileError, compile } from '../../../../api/cel/cel.ts';
import { type CelType, dyn } from '../../../../api/cel/types.ts';
import { CelError, type CelValue, CostExceeded } from '../../../../api/cel/values.ts';
import { ADMISSION_VARIABLES, type Bindings, Expression, LazyVariables } from './expressions.ts';
import type { Policy } from './policy-types.ts';

/** One validation of a policy; `index` is its place in the specification, which messages name. */
export interface CompiledValidation {
  readonly index: number;
  readonly expression: Expression;
  readonly message: string;
  readonly messageExpression: Expression | undefined;
  readonly reason: string;
}

/** One mutation of a policy; the patch type says what the expression returns. */
export interface CompiledMutation {
  readonly patchType: string;
  readonly expression: Expression;
}

/** The expressions of a policy, compiled with the types of its variables. */
export interface CompiledPolicy {
  readonly name: string;
  readonly failsClosed: boolean;
  readonly conditions: readonly Expression[];
  readonly validations: readonly CompiledValidation[];
  readonly audits: readonly { readonly key: string; readonly value: Expression }[];
  readonly mutations: readonly CompiledMutation[];
  readonly variables: ReadonlyMap<string, Expression>;
}

const compiled = new WeakMap<Policy, CompiledPolicy>();

/** Compiles the policy at its first use; another version of it is another object, which is compiled as well. */
export function compiledPolicy(policy: Policy): CompiledPolicy {
  let result = compiled.get(policy);
  if (result === undefined) {
    result = compileAll(policy);
    compiled.set(policy, result);
  }
  return result;
}

function compileAll(policy: Policy): CompiledPolicy {
  const { spec = {} } = policy;
  const types: Record<string, CelType> = {};
  const variables = new Map<string, Expression>();
  const environment: CelEnvironment = {
    variables: { ...ADMISSION_VARIABLES, variables: struct('kubernetes.variables', types) },
  };
  const patches: CelEnvironment = { ...environment, ...PATCH_DECLARATIONS };
  for (const { name, expression } of spec.variables ?? []) {
    const variable = new Expression(expression, environment);
    // A variable can only use the variables before it.
    const type = typeOf(expression, environment);
    variables.set(name, variable);
    types[name] = type;
  }
  const ready = (source: string): Expression => new Expression(source, environment);
  return {
    name: policy.metadata.name ?? '',
    failsClosed: spec.failurePolicy !== 'Ignore',
    conditions: (spec.matchConditions ?? []).map(({ expression }) => ready(expression)),
    validations: (spec.validations ?? []).map((validation, index) => ({
      index,
      expression: ready(validation.expression),
      message: (validation.message ?? '').trim(),
      messageExpression: validation.messageExpression ? ready(validation.messageExpression) : undefined,
      reason: validation.reason ?? 'Invalid',
    })),
    audits: (spec.auditAnnotations ?? []).map(({ key, valueExpression }) => ({ key, value: ready(valueExpression) })),
    mutations: (spec.mutations ?? []).map((mutation) => ({
      patchType: mutation.patchType,
      expression: new Expression(
        mutation.applyConfiguration?.expression ?? mutation.jsonPatch?.expression ?? '',
        patches,
      ),
    })),
    variables,
  };
}

/** Returns the type of an expression. It is `dyn` for one that does not compile, whose evaluation fails later. */
function typeOf(expression: string, environment: CelEnvironment): CelType {
  try {
    return compile(expression.trim(), environment).type;
  } catch (error) {
    if (error instanceof CelCompileError) return dyn;
    throw error;
  }
}

/** Returns the value of `variables` in one evaluation. */
export function variablesOf({ variables }: CompiledPolicy, bindings: () => Bindings): LazyVariables {
  return new LazyVariables((name): CelValue | undefined => {
    const expression = variables.get(name);
    if (expression === undefined) return undefined;
    try {
      return expression.program().run((variable) => bindings().read(variable), bindings().budget);
    } catch (error) {
      if (!(error instanceof CelError) && !(error instanceof CostExceeded)) throw error;
      throw new CelError(`composited variable ${quoteText(name)} fails to evaluate: ${error.message}`, {
        cause: error,
      });
    }
  });
}
