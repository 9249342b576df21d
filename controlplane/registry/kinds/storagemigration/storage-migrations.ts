/**
 * Defines the strategy of storage version migrations: the resource whose objects are rewritten, and the progress. A finished
 * migration is final.
 */
import { quoteText } from '../../../../api/meta/quote.ts';
import type { V1beta1StorageVersionMigrationSpec, V1beta1StorageVersionMigrationStatus } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { conditionErrors } from '../../../../api/meta/conditions.ts';
import { type FieldError, invalid } from '../../../../api/meta/field-error.ts';
import { statusWithoutMetadata, restore } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import { immutable, requiredText } from '../field-rules.ts';

type Migration = Kind<{ spec: V1beta1StorageVersionMigrationSpec; status: V1beta1StorageVersionMigrationStatus }>;

const CONDITIONS = 'status.conditions';

const createErrors = ({ spec }: Migration): FieldError[] =>
  requiredText('spec.resource.resource', spec?.resource?.resource, 'resource is required');

function updateErrors(object: Migration, old: Migration): FieldError[] {
  const now = object.spec?.resource;
  const before = old.spec?.resource;
  return [
    ...createErrors(object),
    ...immutable('group', now?.group ?? '', before?.group ?? ''),
    ...immutable('resource', now?.resource ?? '', before?.resource ?? ''),
  ];
}

const isTrue = ({ status }: Migration, type: string): boolean =>
  (status?.conditions ?? []).some((condition) => condition.type === type && condition.status === 'True');

function statusErrors(object: Migration, old: Migration): FieldError[] {
  const conditions = object.status?.conditions ?? [];
  const revision = object.status?.resourceVersion ?? '';
  const before = old.status?.resourceVersion ?? '';
  const at = 'status.resourceVersion';
  const errors: FieldError[] = [];
  if (revision !== '' && !/^[+-]?\d+$/.test(revision)) {
    const quoted = quoteText(revision);
    const text = `failed to parse resource version ${quoted}: strconv.ParseInt: parsing ${quoted}: invalid syntax`;
    errors.push(invalid(at, revision, text));
  } else if (Number(revision) < 0) errors.push(invalid(at, Number(revision), 'must be greater than or equal to 0'));
  errors.push(...conditionErrors(conditions, CONDITIONS));
  if (before !== '' && before !== revision) errors.push(invalid(at, revision, 'cannot be updated'));
  const refuse = (detail: string): void => void errors.push(invalid(CONDITIONS, conditions, detail));
  const [succeeded, failed, running] = ['Succeeded', 'Failed', 'Running'].map((type) => isTrue(object, type));
  if (succeeded && failed) refuse('Both success and failed conditions cannot be true at the same time');
  if (succeeded && running) refuse('Running condition cannot be true when success condition is true');
  if (failed && running) refuse('Running condition cannot be true when failed condition is true');
  if (isTrue(old, 'Succeeded') && !succeeded) refuse('Success condition cannot be set to false once it is true');
  if (isTrue(old, 'Failed') && !failed) refuse('Failed condition cannot be set to false once it is true');
  return errors;
}

const migrations: Strategy<Migration> = {
  requiresResourceVersion: true,
  prepareForCreate: (object) => void delete object.status,
  prepareForUpdate: (object, old) => restore(object, old, 'status'),
  validateCreate: createErrors,
  validateUpdate: updateErrors,
  resetFields: [['status']],
  status: { ...(statusWithoutMetadata as UpdateStrategy<Migration>), validateUpdate: statusErrors },
};

export const storageMigrationKinds = [kindRow('storagemigration.k8s.io', 'storageversionmigrations', migrations)];
