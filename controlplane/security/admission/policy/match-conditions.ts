/** Evaluates the match conditions of admission webhooks and of authorization webhooks. */
import { struct } from '../../../../api/cel/admission-variables.ts';
import { CelCompileError, compile, type Program } from '../../../../api/cel/cel.ts';
import { bool, dyn, list, map, showType, string } from '../../../../api/cel/types.ts';
import { CelError, CostExceeded, Pending } from '../../../../api/cel/values.ts';
import type { Authorizer } from '../../authorization/authorization.ts';
import type { MatchConditionCompiler } from '../../authorization/authorization-config.ts';
import type { MatchConditions } from '../webhook/dispatcher.ts';
import { ADMISSION_VARIABLES, authorizerFor, Bindings, Expression, requestValue, runInTurns } from './expressions.ts';

/** The number of compiled expressions that are kept. */
const MAX_EXPRESSIONS = 1000;

/**
 * Returns the function that evaluates the match conditions of an admission webhook for a request. If no condition is false but
 * one fails, it returns the error.
 */
export function webhookConditions(authorizer: () => Authorizer): MatchConditions {
  const { object, oldObject, request, authorizer: decider } = ADMISSION_VARIABLES;
  const variables = {
    object: object ?? dyn,
    oldObject: oldObject ?? dyn,
    request: request ?? dyn,
    authorizer: decider ?? dyn,
  };
  const compiled = new Map<string, Expression>();
  const expressionOf = (source: string): Expression => {
    let expression = compiled.get(source);
    if (expression === undefined) {
      expression = new Expression(source, { variables });
      if (compiled.size < MAX_EXPRESSIONS) compiled.set(source, expression);
    }
    return expression;
  };
  return async (conditions, attributes, view) => {
    const bindings = new Bindings({
      object: () => view.object,
      oldObject: () => view.oldObject,
      request: () => requestValue(attributes, view),
      authorizer: () => authorizerFor(authorizer(), attributes),
    });
    const failures: string[] = [];
    for (const { expression } of conditions) {
      try {
        const program = expressionOf(expression).program();
        if ((await runInTurns(program, bindings)) !== true) return { matches: false };
      } catch (error) {
        failures.push(`expression '${expression.trim()}' resulted in error: ${reasonOf(error)}`);
      }
    }
    const [first] = failures;
    if (first === undefined) return { matches: true };
    return { matches: false, error: failures.length === 1 ? first : `[${failures.join(', ')}]` };
  };
}

function reasonOf(error: unknown): string {
  if (error instanceof CelError || error instanceof CostExceeded) return error.message;
  if (error instanceof Pending) return 'the decision is not known yet';
  throw error;
}

const attributesType = struct('resourceAttributes', {
  namespace: string,
  verb: string,
  group: string,
  version: string,
  resource: string,
  subresource: string,
  name: string,
  fieldSelector: dyn,
  labelSelector: dyn,
});
const reviewType = struct('kubernetes.SubjectAccessReviewSpec', {
  resourceAttributes: attributesType,
  nonResourceAttributes: struct('nonResourceAttributes', { path: string, verb: string }),
  user: string,
  groups: list(string),
  extra: map(string, list(string)),
  uid: string,
});

/**
 * Compiles a match condition of `--authorization-config`. Throws an error with the reason if it is invalid or not a boolean.
 */
export const authorizationCondition: MatchConditionCompiler = (expression) => {
  let program: Program;
  try {
    program = compile(expression, { variables: { request: reviewType } });
  } catch (error) {
    if (error instanceof CelCompileError) throw new Error(error.reason, { cause: error });
    throw error;
  }
  if (program.type.kind !== bool.kind) throw new Error(`must evaluate to bool but got ${showType(program.type)}`);
  return { matches: (request) => program.run(() => request) === true };
};
