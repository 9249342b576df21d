/**
 * The interface by which kinds validate CEL expressions: whether an expression compiles, and whether it has the type that its
 * place requires.
 */
import { stringifyJson } from '../../../../api/codec/json.ts';
import type { Clock } from '../../../../api/machinery/clock.ts';
import { TimeSlice } from '../../../../api/machinery/time-slice.ts';
import { forbidden, internal, invalid, type FieldError } from '../../../../api/meta/field-error.ts';

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

/** A variable of a policy. */
export interface NamedExpression {
  readonly name: string;
  readonly expression: string;
}

/** An expression with what it may refer to. */
export interface ExpressionQuestion {
  readonly place: ExpressionPlace;
  readonly expression: string;
  /** Whether the expression may use `params`. */
  readonly params: boolean;
  /** Whether the expression may use `authorizer`. */
  readonly authorizer: boolean;
  /** The variables of the object, in order. All questions about one object have the same array. */
  readonly variables: readonly NamedExpression[];
  /** How many of the variables are defined before the expression. If there are none, `variables` is undeclared. */
  readonly visible: number;
}

/** The result for an expression that is valid, but whose estimated cost exceeds the limit of its place. */
export const TOO_COMPLEX: unique symbol = Symbol('too complex');

/**
 * Returns why an expression is invalid (`compilation failed: …`, `must evaluate to bool but got int`), `TOO_COMPLEX`, or
 * `undefined` if it is valid.
 */
export type ExpressionChecker = (question: ExpressionQuestion) => string | typeof TOO_COMPLEX | undefined;

/**
 * Returns a forbidden error if the cost exceeds its limit, an internal one if a constant part of the expression has no value,
 * and an invalid one if the expression does not compile or has the wrong type. By default, an expression may use `authorizer`,
 * but neither `params` nor variables.
 */
export function expressionErrors(
  check: ExpressionChecker,
  field: string,
  question: Pick<ExpressionQuestion, 'place' | 'expression'> & Partial<ExpressionQuestion>,
): FieldError[] {
  const fault = check({ params: false, authorizer: true, variables: [], visible: 0, ...question });
  if (fault === TOO_COMPLEX) return [forbidden(field, 'too complex, exceeds cost limit')];
  if (fault === undefined) return [];
  // kube-apiserver reports a constant part without a value as its own fault, and not as one of the request.
  if (fault.startsWith('program instantiation failed')) return [internal(field, fault)];
  return [invalid(field, question.expression, fault)];
}

/**
 * The number of expressions up to which an object is validated in one turn of the event loop. Each may have ten thousand
 * characters.
 */
const EXPRESSIONS_PER_TURN = 4;

/**
 * Validates an object with any number of expressions. If there are many, they are checked in slices, and this returns a
 * promise: compiling a thousand of them takes seconds. `validate` is called twice, first to collect the expressions, so it must
 * be pure.
 */
export function checkedInSlices(
  check: ExpressionChecker,
  clock: Pick<Clock, 'monotonic'>,
  validate: (check: ExpressionChecker) => FieldError[],
): FieldError[] | Promise<FieldError[]> {
  const questions = new Map<string, ExpressionQuestion>();
  validate((question) => {
    questions.set(keyOf(question), question);
    return undefined;
  });
  if (questions.size <= EXPRESSIONS_PER_TURN) return validate(check);
  return allChecked(check, new TimeSlice(clock), questions).then((answers) =>
    validate((question) => answers.get(keyOf(question))),
  );
}

/** Identifies a question among those about one object. */
const keyOf = ({ place, expression, params, authorizer, visible }: ExpressionQuestion): string =>
  stringifyJson([place, expression, params, authorizer, visible]);

async function allChecked(
  check: ExpressionChecker,
  slice: TimeSlice,
  questions: ReadonlyMap<string, ExpressionQuestion>,
): Promise<ReadonlyMap<string, ReturnType<ExpressionChecker>>> {
  const answers = new Map<string, ReturnType<ExpressionChecker>>();
  for (const [key, question] of questions) {
    answers.set(key, check(question));
    if (slice.isSpent) await slice.pause();
  }
  return answers;
}
