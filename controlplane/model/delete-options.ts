/** Validates the options of a deletion, for requests that delete and for evictions. */
import { type FieldError, invalid, notSupported, unsupportedValue } from '../../api/meta/field-error.ts';

const POLICIES = ['Foreground', 'Background', 'Orphan'];

interface GivenDeleteOptions {
  readonly dryRun: readonly string[];
  readonly propagationPolicy: string | undefined;
  readonly orphanDependents: boolean | undefined;
}

/** Returns the errors in the order of kube-apiserver. They belong to `DeleteOptions.meta.k8s.io` without a name. */
export function deleteOptionsErrors({
  dryRun,
  propagationPolicy: policy,
  orphanDependents,
}: GivenDeleteOptions): FieldError[] {
  const errors: FieldError[] = [];
  if (orphanDependents !== undefined && policy !== undefined) {
    const why = 'orphanDependents and deletionPropagation cannot be both set';
    errors.push(invalid('propagationPolicy', policy, why));
  }
  if (policy !== undefined && !POLICIES.includes(policy))
    errors.push(unsupportedValue('propagationPolicy', policy, [...POLICIES, 'nil']));
  return [...errors, ...dryRunErrors(dryRun)];
}

/** Returns the error of values of `dryRun` other than `All`. */
export function dryRunErrors(values: readonly string[]): FieldError[] {
  return values.every((value) => value === 'All') ? [] : [notSupported('dryRun', values, ['All'])];
}
