/** Validates the spec of jobs, both of job objects and of the templates of cron jobs. */
import { podTemplateErrors } from '../../../../api/kinds/pod-validation.ts';
import {
  type FieldError,
  invalid,
  notSupported,
  required,
  tooLong,
  unsupportedValue,
} from '../../../../api/meta/field-error.ts';
import { domainPrefixedPathErrors } from '../../../../api/meta/names.ts';
import { nonNegative } from '../field-rules.ts';
import { failurePolicyErrors, successPolicyErrors } from './job-policies.ts';
import type { JobSpec } from './job-types.ts';

const RESTART = ['OnFailure', 'Never'];
/** The largest `parallelism` and `maxFailedIndexes` of an indexed job, as in kube-apiserver. */
const MAX_INDEXED = 100_000;
/** The maximum number of characters of `managedBy`. */
const MAX_MANAGED_BY_LENGTH = 63;

/** Returns the errors of a job's spec. `path` is its path. */
export function jobSpecErrors(spec: JobSpec, path: string): FieldError[] {
  const errors: FieldError[] = [
    ...nonNegative(`${path}.parallelism`, spec.parallelism),
    ...nonNegative(`${path}.completions`, spec.completions),
    ...nonNegative(`${path}.activeDeadlineSeconds`, spec.activeDeadlineSeconds),
    ...nonNegative(`${path}.backoffLimit`, spec.backoffLimit),
    ...nonNegative(`${path}.ttlSecondsAfterFinished`, spec.ttlSecondsAfterFinished),
    ...nonNegative(`${path}.backoffLimitPerIndex`, spec.backoffLimitPerIndex),
    ...nonNegative(`${path}.maxFailedIndexes`, spec.maxFailedIndexes),
  ];
  if (spec.maxFailedIndexes !== undefined && spec.backoffLimitPerIndex === undefined)
    errors.push(required(`${path}.backoffLimitPerIndex`, 'when maxFailedIndexes is specified'));
  if (spec.managedBy !== undefined) {
    errors.push(...domainPrefixedPathErrors(`${path}.managedBy`, spec.managedBy));
    if (spec.managedBy.length > MAX_MANAGED_BY_LENGTH) errors.push(tooLong(`${path}.managedBy`, MAX_MANAGED_BY_LENGTH));
  }
  errors.push(
    ...completionErrors(spec, path),
    ...failurePolicyErrors(spec, path),
    ...successPolicyErrors(spec, path),
    ...replacementErrors(spec, path),
  );
  errors.push(...podTemplateErrors(spec.template, `${path}.template`));
  const policy = spec.template?.spec?.restartPolicy;
  if (policy === undefined || policy === 'Always') {
    errors.push(required(`${path}.template.spec.restartPolicy`, 'valid values: "OnFailure", "Never"'));
  } else if (!RESTART.includes(policy))
    errors.push(unsupportedValue(`${path}.template.spec.restartPolicy`, policy, RESTART));
  else if (spec.podFailurePolicy !== undefined && policy !== 'Never') {
    errors.push(
      invalid(
        `${path}.template.spec.restartPolicy`,
        policy,
        'only "Never" is supported when podFailurePolicy is specified',
      ),
    );
  }
  return errors;
}

function completionErrors(spec: JobSpec, path: string): FieldError[] {
  const { completionMode, completions, parallelism, backoffLimitPerIndex, maxFailedIndexes } = spec;
  const errors: FieldError[] = [];
  if (completionMode !== undefined && completionMode !== 'NonIndexed' && completionMode !== 'Indexed') {
    return [unsupportedValue(`${path}.completionMode`, completionMode, ['NonIndexed', 'Indexed'])];
  }
  if (completionMode === 'Indexed') {
    if (completions === undefined) errors.push(required(`${path}.completions`, 'when completion mode is Indexed'));
    if (parallelism !== undefined && parallelism > MAX_INDEXED) {
      errors.push(
        invalid(
          `${path}.parallelism`,
          parallelism,
          `must be less than or equal to ${MAX_INDEXED} when completion mode is Indexed`,
        ),
      );
    }
    if (maxFailedIndexes !== undefined && completions !== undefined && maxFailedIndexes > completions) {
      errors.push(invalid(`${path}.maxFailedIndexes`, maxFailedIndexes, 'must be less than or equal to completions'));
    }
    if (maxFailedIndexes !== undefined && maxFailedIndexes > MAX_INDEXED)
      errors.push(
        invalid(`${path}.maxFailedIndexes`, maxFailedIndexes, `must be less than or equal to ${MAX_INDEXED}`),
      );
    errors.push(...largeErrors(spec, path));
  } else {
    if (backoffLimitPerIndex !== undefined)
      errors.push(invalid(`${path}.backoffLimitPerIndex`, backoffLimitPerIndex, 'requires indexed completion mode'));
    if (maxFailedIndexes !== undefined)
      errors.push(invalid(`${path}.maxFailedIndexes`, maxFailedIndexes, 'requires indexed completion mode'));
  }
  return errors;
}

/**
 * The largest `parallelism` and `maxFailedIndexes` of a job with more than `MAX_INDEXED` completions and a back-off limit per
 * index.
 */
const MANY_AT_ONCE = 10_000;

/**
 * Limits the parallelism and the failed indexes of a job with many completions and a back-off limit per index, because its
 * status must be able to hold the results of all indexes.
 */
function largeErrors(spec: JobSpec, path: string): FieldError[] {
  const { completions = 0, parallelism = 0, backoffLimitPerIndex, maxFailedIndexes: failed } = spec;
  if (completions <= MAX_INDEXED || backoffLimitPerIndex === undefined) return [];
  const errors: FieldError[] = [];
  const text = `must be less than or equal to ${MANY_AT_ONCE} when completions are above ${MAX_INDEXED} and used with backoff limit per index`;
  if (failed === undefined)
    errors.push(required(`${path}.maxFailedIndexes`, `must be specified when completions is above ${MAX_INDEXED}`));
  if (parallelism > MANY_AT_ONCE) errors.push(invalid(`${path}.parallelism`, parallelism, text));
  if (failed !== undefined && failed > MANY_AT_ONCE) errors.push(invalid(`${path}.maxFailedIndexes`, failed, text));
  return errors;
}

function replacementErrors(spec: JobSpec, path: string): FieldError[] {
  const { podReplacementPolicy: policy, podFailurePolicy } = spec;
  if (policy === undefined) return [];
  const supported = podFailurePolicy === undefined ? ['Failed', 'TerminatingOrFailed'] : ['Failed'];
  return supported.includes(policy) ? [] : [notSupported(`${path}.podReplacementPolicy`, policy, supported)];
}
