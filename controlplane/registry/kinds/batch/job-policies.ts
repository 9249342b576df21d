/** Validates the pod failure policy and the success policy of a job. */
import { quoteText } from '../../../../api/meta/quote.ts';
import {
  duplicate,
  type FieldError,
  invalid,
  notSupported,
  OMITTED_VALUE,
  required,
  tooLong,
} from '../../../../api/meta/field-error.ts';
import { qualifiedNameErrors } from '../../../../api/meta/names.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import type { Job, JobSpec } from './job-types.ts';
import { maxItems } from '../field-rules.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

const ACTIONS = ['Count', 'FailIndex', 'FailJob', 'Ignore'];
const OPERATORS = ['In', 'NotIn'];
const STATES = ['False', 'True', 'Unknown'];
/** The limits of policies in kube-apiserver (pkg/apis/batch/validation). */
const MAX_RULES = 20;
const MAX_CONDITION_PATTERNS = 20;
const MAX_EXIT_CODES = 255;

/** Lists the valid values as Go prints a slice of strings. */
const valid = (values: readonly string[]): string =>
  `valid values: [${values.map((value) => quoteText(value)).join(' ')}]`;

type FailureRule = NonNullable<NonNullable<JobSpec['podFailurePolicy']>['rules']>[number];

/** Returns the errors of a pod failure policy. `path` is the path of the job's spec. */
export function failurePolicyErrors(spec: JobSpec, path: string): FieldError[] {
  const policy = spec.podFailurePolicy;
  if (policy === undefined) return [];
  const at = `${path}.podFailurePolicy.rules`;
  const containers = new Set(
    [...(spec.template?.spec?.containers ?? []), ...(spec.template?.spec?.initContainers ?? [])].map(
      ({ name }) => name,
    ),
  );
  const errors = maxItems(at, policy.rules, MAX_RULES);
  for (const [index, rule] of (policy.rules ?? []).entries())
    errors.push(...failureRuleErrors(rule, `${at}[${index}]`, spec, containers));
  return errors;
}

function failureRuleErrors(
  rule: FailureRule,
  at: string,
  spec: JobSpec,
  containers: ReadonlySet<string | undefined>,
): FieldError[] {
  const errors: FieldError[] = [];
  const { action = '', onExitCodes, onPodConditions = [] } = rule;
  if (action === '') errors.push(required(`${at}.action`, valid(ACTIONS)));
  else if (action === 'FailIndex') {
    if (spec.backoffLimitPerIndex === undefined)
      errors.push(invalid(`${at}.action`, action, 'requires the backoffLimitPerIndex to be set'));
  } else if (!ACTIONS.includes(action)) errors.push(notSupported(`${at}.action`, action, ACTIONS));
  if (onExitCodes !== undefined) errors.push(...exitCodeErrors(onExitCodes, `${at}.onExitCodes`, containers));
  if (onPodConditions.length > 0) {
    errors.push(...maxItems(`${at}.onPodConditions`, onPodConditions, MAX_CONDITION_PATTERNS));
    for (const [index, { type = '', status = '' }] of onPodConditions.entries()) {
      errors.push(...invalidFor(`${at}.onPodConditions[${index}].type`, type, qualifiedNameErrors(type)));
      if (status === '') errors.push(required(`${at}.onPodConditions[${index}].status`, valid(STATES)));
      else if (!STATES.includes(status))
        errors.push(notSupported(`${at}.onPodConditions[${index}].status`, status, STATES));
    }
  }
  if (onExitCodes !== undefined && onPodConditions.length > 0)
    errors.push(invalid(at, OMITTED_VALUE, 'specifying both OnExitCodes and OnPodConditions is not supported'));
  if (onExitCodes === undefined && onPodConditions.length === 0)
    errors.push(invalid(at, OMITTED_VALUE, 'specifying one of OnExitCodes and OnPodConditions is required'));
  return errors;
}

function exitCodeErrors(
  codes: { containerName?: string | undefined; operator?: string | undefined; values?: number[] | undefined },
  at: string,
  containers: ReadonlySet<string | undefined>,
): FieldError[] {
  const errors: FieldError[] = [];
  const { operator = '', values = [], containerName } = codes;
  if (operator === '') errors.push(required(`${at}.operator`, valid(OPERATORS)));
  else if (!OPERATORS.includes(operator)) errors.push(notSupported(`${at}.operator`, operator, OPERATORS));
  if (containerName !== undefined && !containers.has(containerName)) {
    errors.push(
      invalid(
        `${at}.containerName`,
        containerName,
        'must be one of the container or initContainer names in the pod template',
      ),
    );
  }
  if (values.length === 0) errors.push(invalid(`${at}.values`, codes.values ?? null, 'at least one value is required'));
  errors.push(...maxItems(`${at}.values`, values, MAX_EXIT_CODES));
  const seen = new Set<number>();
  let ordered = true;
  for (const [index, value] of values.entries()) {
    if (operator === 'In' && value === 0)
      errors.push(invalid(`${at}.values[${index}]`, value, 'must not be 0 for the In operator'));
    if (seen.has(value)) errors.push(duplicate(`${at}.values[${index}]`, value));
    seen.add(value);
    if (index > 0 && (values[index - 1] ?? 0) > value) ordered = false;
  }
  if (!ordered) errors.push(invalid(`${at}.values`, values, 'must be ordered'));
  return errors;
}

/** The maximum number of characters of `succeededIndexes`. */
const MAX_INDEX_CHARACTERS = 64 * 1024;

/** Returns the errors of a success policy, which only indexed jobs may have. `path` is the path of the job's spec. */
export function successPolicyErrors(spec: JobSpec, path: string): FieldError[] {
  const policy = spec.successPolicy;
  if (policy === undefined) return [];
  const at = `${path}.successPolicy`;
  if (spec.completionMode !== 'Indexed')
    return [invalid(at, internalForm('io.k8s.api.batch.v1.SuccessPolicy', policy), 'requires indexed completion mode')];
  const rules = policy.rules ?? [];
  if (rules.length === 0)
    return [required(`${at}.rules`, 'at least one rules must be specified when the successPolicy is specified')];
  const errors = maxItems(`${at}.rules`, rules, MAX_RULES);
  const completions = spec.completions ?? 0;
  for (const [index, rule] of rules.entries()) {
    const rulePath = `${at}.rules[${index}]`;
    const { succeededCount, succeededIndexes } = rule;
    if (succeededCount === undefined && succeededIndexes === undefined) {
      errors.push(required(rulePath, 'at least one of succeededCount or succeededIndexes must be specified'));
      continue;
    }
    if ((succeededIndexes ?? '').length > MAX_INDEX_CHARACTERS)
      errors.push(tooLong(`${rulePath}.succeededIndexes`, MAX_INDEX_CHARACTERS));
    let total = 0;
    if (succeededIndexes !== undefined) {
      const parsed = countIndexes(succeededIndexes, completions);
      if (typeof parsed === 'string')
        errors.push(
          invalid(`${rulePath}.succeededIndexes`, succeededIndexes, `error parsing succeededIndexes: ${parsed}`),
        );
      else total = parsed;
    }
    if (succeededCount === undefined) continue;
    if (succeededCount < 0)
      errors.push(invalid(`${rulePath}.succeededCount`, succeededCount, 'must be greater than or equal to 0'));
    if (succeededCount > completions) {
      errors.push(
        invalid(
          `${rulePath}.succeededCount`,
          succeededCount,
          `must be less than or equal to ${completions} (the number of specified completions)`,
        ),
      );
    }
    if (succeededIndexes !== undefined && succeededCount > total) {
      errors.push(
        invalid(
          `${rulePath}.succeededCount`,
          succeededCount,
          `must be less than or equal to ${total} (the number of indexes in the specified succeededIndexes field)`,
        ),
      );
    }
  }
  return errors;
}

/** Returns how many indexes a text such as `1,3-5` contains, or the message of its first error. */
export function countIndexes(text: string, completions: number): number | string {
  if (text === '') return 0;
  let total = 0;
  let last: number | undefined;
  for (const part of text.split(',')) {
    const bounds = part.split('-');
    if (bounds.length > 2)
      return `the fragment ${quoteText(part)} violates the requirement that an index interval can have at most two parts separated by '-'`;
    let first: number | undefined;
    for (const bound of bounds) {
      if (!/^[+-]?\d+$/.test(bound)) return `cannot convert string to integer for index: ${quoteText(bound)}`;
      const index = Number(bound);
      if (index >= completions) return `too large index: ${quoteText(bound)}`;
      if (last !== undefined && last >= index) return `non-increasing order, previous: ${last}, current: ${index}`;
      last = index;
      first ??= index;
    }
    total += (last ?? 0) - (first ?? 0) + 1;
  }
  return total;
}

/** Returns whether the job is suspended, has no active pod, and has not started or reports that it is suspended. */
export function isIdle({ spec, status }: Job): boolean {
  if (spec?.suspend !== true || (status?.active ?? 0) > 0) return false;
  if (status?.startTime === undefined) return true;
  return (status.conditions ?? []).some((one) => one.type === 'Suspended' && one.status === 'True');
}

/** The warning for a DELETE that does not name a propagation policy. */
export const ORPHANED_PODS =
  'child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning';
