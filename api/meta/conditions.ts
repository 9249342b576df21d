/** Validates conditions of the common type `metav1.Condition`. */
import { duplicate, invalid, notSupported, required, tooLong, type FieldError } from './field-error.ts';
import { patternError } from './names.ts';
import { validateLabelName } from './selector.ts';

/** A condition as a client sent it. */
export interface CommonCondition {
  readonly type?: string | undefined;
  readonly status?: string | undefined;
  readonly observedGeneration?: number | undefined;
  readonly lastTransitionTime?: unknown;
  readonly reason?: string | undefined;
  readonly message?: string | undefined;
}

const STATUSES = ['False', 'True', 'Unknown'];
const MAX_REASON_BYTES = 1024;
const MAX_MESSAGE_BYTES = 32 * 1024;
const REASON = '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?';
const REASON_PATTERN = new RegExp(`^${REASON}$`);
const REASON_EXAMPLES = ['my_name', 'MY_NAME', 'MyName', 'ReasonA,ReasonB', 'ReasonA:ReasonB'];
const REASON_TEXT =
  'a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters ' +
  "or '_,:', and must end with an alphanumeric character or '_'";

/** Validates each condition, and that no type occurs twice. */
export function conditionErrors(conditions: readonly CommonCondition[] | null | undefined, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const types = new Set<string>();
  for (const [index, condition] of (conditions ?? []).entries()) {
    const at = `${path}[${index}]`;
    const { type = '' } = condition;
    if (types.has(type)) errors.push(duplicate(`${at}.type`, type));
    types.add(type);
    errors.push(...oneConditionErrors(condition, at));
  }
  return errors;
}

function oneConditionErrors(condition: CommonCondition, at: string): FieldError[] {
  const { type = '', status = '', observedGeneration = 0, reason = '', message = '' } = condition;
  const errors = validateLabelName(type, `${at}.type`);
  if (!STATUSES.includes(status)) errors.push(notSupported(`${at}.status`, status, STATUSES));
  if (observedGeneration < 0)
    errors.push(invalid(`${at}.observedGeneration`, observedGeneration, 'must be greater than or equal to zero'));
  if (condition.lastTransitionTime === undefined || condition.lastTransitionTime === null)
    errors.push(required(`${at}.lastTransitionTime`));
  if (reason === '') errors.push(required(`${at}.reason`));
  else if (!REASON_PATTERN.test(reason))
    errors.push(invalid(`${at}.reason`, reason, patternError(REASON_TEXT, REASON, ...REASON_EXAMPLES)));
  if (Buffer.byteLength(reason) > MAX_REASON_BYTES) errors.push(tooLong(`${at}.reason`, MAX_REASON_BYTES));
  if (Buffer.byteLength(message) > MAX_MESSAGE_BYTES) errors.push(tooLong(`${at}.message`, MAX_MESSAGE_BYTES));
  return errors;
}
