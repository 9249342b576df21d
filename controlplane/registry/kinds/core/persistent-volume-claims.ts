/** Defines the strategy of persistent volume claims. The spec is immutable, except for what `comparable` makes equal. */
import { quoteText } from '../../../../api/meta/quote.ts';
import type { V1PersistentVolumeClaimStatus } from '@kubernetes/client-node';
import { claimSpecErrors, type ClaimSpec, type DataSource } from '../../../../api/kinds/claim-validation.ts';
import type { Wire } from '../../../../api/kinds/wire.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../../../../api/meta/field-error.ts';
import { cloneJson } from '../../../../api/meta/json-equality.ts';
import { qualifiedNameErrors } from '../../../../api/meta/names.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { compareQuantities, milliUnits, parseQuantity } from '../../../../api/meta/quantity.ts';
import { claimColumns } from '../storage/columns.ts';
import { restore, statusOnly } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import { IMMUTABLE, immutable } from '../field-rules.ts';
import { typeDiff } from '../../../../api/schema/spec-diff.ts';
import { equalAs } from '../../../../api/schema/semantic-equality.ts';
import { BETA_STORAGE_CLASS_ANNOTATION } from '../../../../api/meta/well-known-labels.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type Claim = KubeObject & { spec?: ClaimSpec; status?: Wire<V1PersistentVolumeClaimStatus> };

const RESIZE_STATES = [
  'ControllerResizeInProgress',
  'ControllerResizeInfeasible',
  'NodeResizeInProgress',
  'NodeResizeInfeasible',
  'NodeResizePending',
];
const FIXED =
  'spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims';

const CLAIM_SPEC = 'io.k8s.api.core.v1.PersistentVolumeClaimSpec';

function isClaimOrSnapshot({ apiGroup, kind }: DataSource): boolean {
  const group = apiGroup ?? '';
  if (kind === 'PersistentVolumeClaim') return group === '';
  return kind === 'VolumeSnapshot' && group === 'snapshot.storage.k8s.io';
}

/** Makes `dataSource` and `dataSourceRef` equal, and drops what feature gates that are off do not allow. */
function normalizeSources(spec: ClaimSpec, old: ClaimSpec | undefined): void {
  if ((spec.dataSourceRef?.namespace ?? null) !== null && old?.dataSourceRef === undefined) delete spec.dataSourceRef;
  const isNew = spec.dataSourceRef === undefined && old?.dataSource === undefined && old?.dataSourceRef === undefined;
  if (isNew && spec.dataSource !== undefined && !isClaimOrSnapshot(spec.dataSource)) delete spec.dataSource;
  copySources(spec);
}

function copySources(spec: ClaimSpec): void {
  const { dataSource, dataSourceRef } = spec;
  if (dataSource !== undefined && dataSourceRef === undefined) spec.dataSourceRef = { ...dataSource };
  else if (dataSourceRef !== undefined && dataSource === undefined && (dataSourceRef.namespace ?? '') === '') {
    const { namespace: _, ...source } = dataSourceRef;
    spec.dataSource = source;
  }
}

const storageOf = (spec: ClaimSpec | undefined): string | undefined => spec?.resources?.requests?.['storage'];

function requests(spec: ClaimSpec): Record<string, string | undefined> {
  spec.resources ??= {};
  return (spec.resources.requests ??= {});
}

/** Returns copies of the two specs in which allowed changes are made equal. */
function comparable(object: Claim, old: Claim): { readonly now: ClaimSpec; readonly before: ClaimSpec } {
  const now = cloneJson(object.spec ?? {});
  const before = cloneJson(old.spec ?? {});
  copySources(before);
  // The volume binder sets the volume name once.
  if ((before.volumeName ?? '') === '') {
    if (now.volumeName === undefined) delete before.volumeName;
    else before.volumeName = now.volumeName;
  }
  const annotated = old.metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION];
  const classGiven = before.storageClassName === undefined && now.storageClassName !== undefined;
  // A class that an annotation names, or no class, may be replaced by the field.
  if (classGiven && (annotated === undefined || annotated === now.storageClassName)) delete now.storageClassName;
  if (object.status?.phase === 'Bound') {
    const size = storageOf(before);
    if (now.resources?.requests !== undefined && size !== undefined) requests(now)['storage'] = size;
    if (before.volumeAttributesClassName === undefined) delete now.volumeAttributesClassName;
    else now.volumeAttributesClassName = before.volumeAttributesClassName;
  }
  return { now, before };
}

/** Returns an error if the request shrinks to the capacity that the volume already has, or below. */
function sizeErrors(object: Claim, old: Claim): FieldError[] {
  const now = storageOf(object.spec) ?? '0';
  const before = storageOf(old.spec) ?? '0';
  if (compareQuantities(parseQuantity(now), parseQuantity(before)) >= 0) return [];
  const reached = (old.status?.capacity as Record<string, string> | undefined)?.['storage'] ?? '0';
  return compareQuantities(parseQuantity(now), parseQuantity(reached)) <= 0
    ? [forbidden('spec.resources.requests.storage', 'field can not be less than status.capacity')]
    : [];
}

/** Returns whether the class moves from the annotation to the field. */
function upgradesClass(object: Claim, old: Claim): boolean {
  const annotatedBefore = old.metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION];
  const now = object.metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION];
  const named = object.spec?.storageClassName;
  return (
    annotatedBefore !== undefined &&
    old.spec?.storageClassName === undefined &&
    named === annotatedBefore &&
    (now === undefined || now === annotatedBefore)
  );
}

function updateErrors(object: Claim, old: Claim): FieldError[] {
  const errors = claimSpecErrors(object.spec ?? {}, 'spec');
  const [annotated, annotatedBefore] = [object, old].map(
    ({ metadata }) => metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION],
  );
  if (annotated !== annotatedBefore && !upgradesClass(object, old))
    errors.push(invalid(`metadata.annotations.${BETA_STORAGE_CLASS_ANNOTATION}`, annotated ?? '', IMMUTABLE));
  const { now, before } = comparable(object, old);
  if (!equalAs(CLAIM_SPEC, now, before))
    errors.push(forbidden('spec', () => `${FIXED}${typeDiff(CLAIM_SPEC, before, now)}`));
  errors.push(...sizeErrors(object, old));
  errors.push(...immutable('volumeMode', object.spec?.volumeMode, old.spec?.volumeMode));
  const wanted = object.spec?.volumeAttributesClassName;
  const applied = old.status?.currentVolumeAttributesClassName !== undefined;
  if (applied && (wanted ?? '') === '' && wanted !== old.spec?.volumeAttributesClassName) {
    const to = wanted === undefined ? 'nil' : 'empty string';
    const text = `update to ${to} is forbidden when status.currentVolumeAttributesClassName is not nil`;
    errors.push(forbidden('spec.volumeAttributesClassName', text));
  }
  return errors;
}

function resourceKeyErrors(name: string, field: string): FieldError[] {
  const errors = invalidFor(field, name, qualifiedNameErrors(name));
  if (errors.length > 0) return errors;
  const native = !name.includes('/') || name.includes('kubernetes.io/');
  return native && name !== 'storage' ? [notSupported(field, name, ['storage'])] : [];
}

function basicQuantityErrors(field: string, quantity: string): FieldError[] {
  const parsed = parseQuantity(quantity);
  return parsed.nano < 0n
    ? [invalid(field, Number(parsed.nano / 1_000_000_000n), 'must be a valid resource quantity')]
    : [];
}

function statusErrors(object: Claim): FieldError[] {
  const errors: FieldError[] = [];
  if ((object.spec?.accessModes ?? []).length === 0) errors.push(required('Spec.accessModes'));
  const status = object.status;
  for (const [name, quantity] of Object.entries((status?.capacity ?? {}) as Record<string, string>)) {
    errors.push(...basicQuantityErrors(`status.capacity[${name}]`, quantity));
  }
  for (const [name, state] of Object.entries((status?.allocatedResourceStatuses ?? {}) as Record<string, string>)) {
    errors.push(...resourceKeyErrors(name, 'status.allocatedResourceStatuses'));
    if (!RESIZE_STATES.includes(state))
      errors.push(notSupported('status.allocatedResourceStatuses', name, RESIZE_STATES));
  }
  for (const [name, quantity] of Object.entries((status?.allocatedResources ?? {}) as Record<string, string>)) {
    const misnamed = resourceKeyErrors(name, 'status.allocatedResources');
    errors.push(
      ...(misnamed.length > 0 ? misnamed : basicQuantityErrors(`status.allocatedResources[${name}]`, quantity)),
    );
  }
  return errors;
}

function warnings(object: Claim): string[] {
  const texts: string[] = [];
  if (object.metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION] !== undefined) {
    texts.push(
      'metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead',
    );
  }
  for (const kind of ['requests', 'limits'] as const) {
    const size = object.spec?.resources?.[kind]?.['storage'];
    if (size !== undefined && milliUnits(parseQuantity(size)) % 1000n !== 0n)
      texts.push(
        `spec.resources.${kind}[storage]: fractional byte value ${quoteText(size)} is invalid, must be an integer`,
      );
  }
  return texts;
}

const claims: Strategy<Claim> = {
  applyDefaults(object) {
    (object.spec ??= {}).volumeMode ??= 'Filesystem';
    object.status ??= {};
    object.status.phase ??= 'Pending';
  },
  prepareForCreate(object) {
    object.status = { phase: 'Pending' };
    normalizeSources((object.spec ??= {}), undefined);
  },
  prepareForUpdate(object, old) {
    restore(object, old, 'status');
    normalizeSources((object.spec ??= {}), old.spec);
  },
  validateCreate: (object) => claimSpecErrors(object.spec ?? {}, 'spec'),
  validateUpdate: updateErrors,
  warningsOnCreate: warnings,
  warningsOnUpdate: warnings,
  returnsDeleted: true,
  resetFields: [['status']],
  columns: claimColumns,
  status: {
    ...(statusOnly as UpdateStrategy<Claim>),
    validateUpdate: statusErrors,
  },
};

export const claimKinds = [kindRow('', 'persistentvolumeclaims', claims)];
