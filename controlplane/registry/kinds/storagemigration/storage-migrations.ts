/**
 * Defines the strategy of storage version migrations: the resource whose objects are rewritten, and the progress. A finished
 * migration is final.
 */
import type { V1beta1StorageVersionMigrationSpec, V1beta1StorageVersionMigrationStatus } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { conditionErrors } from '../../../../api/meta/conditions.ts';
import { dnsSubdomainErrors, rfc1035LabelErrors } from '../../../../api/meta/names.ts';
import { type FieldError, invalid, required } from '../../../../api/meta/field-error.ts';
import { statusWithoutMetadata, restore } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import { storageMigrationColumns } from './columns.ts';
import { IMMUTABLE, immutable } from '../field-rules.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type Migration = Kind<{ spec: V1beta1StorageVersionMigrationSpec; status: V1beta1StorageVersionMigrationStatus }>;

const CONDITIONS = 'status.conditions';

function createErrors({ spec }: Migration): FieldError[] {
  const { group = '', resource = '' } = spec?.resource ?? {};
  return [
    ...(resource === ''
      ? [required('spec.resource.resource', 'resource is required to be set')]
      : invalidFor('spec.resource.resource', resource, rfc1035LabelErrors(resource))),
    ...(group === '' ? [] : invalidFor('spec.resource.group', group, dnsSubdomainErrors(group))),
  ];
}

const updateErrors = (object: Migration, old: Migration): FieldError[] => [
  ...createErrors(object),
  ...immutable('spec', object.spec, old.spec, 'io.k8s.api.storagemigration.v1beta1.StorageVersionMigrationSpec'),
];

const isTrue = ({ status }: Migration, type: string): boolean =>
  (status?.conditions ?? []).some((condition) => condition.type === type && condition.status === 'True');

function statusErrors(object: Migration, old: Migration): FieldError[] {
  const conditions = object.status?.conditions ?? [];
  const revision = object.status?.resourceVersion ?? '';
  const before = old.status?.resourceVersion ?? '';
  const at = 'status.resourceVersion';
  const errors: FieldError[] = [];
  if (revision !== '' && !/^[1-9]\d*$/.test(revision))
    errors.push(invalid(at, revision, `resource version is not well formed: ${revision}`));
  errors.push(...conditionErrors(conditions, CONDITIONS));
  if (before !== '' && before !== revision) errors.push(invalid(at, revision, IMMUTABLE));
  const refuse = (detail: string): void => void errors.push(invalid(CONDITIONS, conditions, detail));
  const [succeeded, failed] = ['Succeeded', 'Failed'].map((type) => isTrue(object, type));
  if (succeeded && failed) refuse('Both success and failed conditions cannot be true at the same time');
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
  columns: storageMigrationColumns,
  status: { ...(statusWithoutMetadata as UpdateStrategy<Migration>), validateUpdate: statusErrors },
};

export const storageMigrationKinds = [kindRow('storagemigration.k8s.io', 'storageversionmigrations', migrations)];
