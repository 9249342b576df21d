/**
 * The interface by which kinds validate CEL expressions: whether an expression compiles, and whether it has the type that its
 * place requires. `expression-environment.ts` implements it.
 */
import { forbidden, invalid, type FieldError } from '../../../../api/meta/field-error.ts';

/** The place of an expression. It determines the result type and the variables. */
export type ExpressionPlace =
  | 'matchCondition'
  | 'validation'
  | 'messageExpression'
  | 'auditAnnotation'
  | 'variable'
  | 'applyConfiguration'
  | 'jsonPatch'
  | 'deviceSelector';

export interface NamedExpression {
  readonly name: string;
  readonly expression: string;
}

export interface ExpressionQuestion {
  readonly place: ExpressionPlace;
  readonly expression: string;
  /** Whether the expression may use `params`. */
  readonly params: boolean;
  /** Whether the expression may use `authorizer`. */
  readonly authorizer: boolean;
  /** The variables that are defined before the expression, in order. If there are none, `variables` is undeclared. */
  readonly variables: readonly NamedExpression[];
}

/** The result for an expression that is valid, but whose estimated cost exceeds the limit of its place. */
export const TOO_COMPLEX: unique symbol = Symbol('too complex');

/** Returns why an expression is invalid (`compilation failed: …`, `must evaluate to bool but got int`), or `undefined`. */
export type ExpressionChecker = (question: ExpressionQuestion) => string | typeof TOO_COMPLEX | undefined;

export function expressionErrors(
  check: ExpressionChecker,
  field: string,
  question: Pick<ExpressionQuestion, 'place' | 'expression'> & Partial<ExpressionQuestion>,
): FieldError[] {
  const fault = check({ params: false, authorizer: true, variables: [], ...question });
  if (fault === TOO_COMPLEX) return [forbidden(field, 'too complex, exceeds cost limit')];
  return fault === undefined ? [] : [invalid(field, question.expression, fault)];
}
