/**
 * Validates the spec of PersistentVolumeClaims, both of claim objects and of claim templates in pods and StatefulSets.
 */
import type { V1LabelSelector } from '@kubernetes/client-node';
import { forbidden, invalid, required, unsupportedValue, type FieldError } from '../meta/field-error.ts';
import { dnsLabelErrors, dnsSubdomainErrors } from '../meta/names.ts';
import { parseQuantity } from '../meta/quantity.ts';
import { validateLabelSelector } from '../meta/selector.ts';
import { invalidFor, isBlank } from './validation-rules.ts';

const ACCESS_MODES = ['ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOnce', 'ReadWriteOncePod'];
/** The modes of claims and volumes. */
export const VOLUME_MODES = ['Block', 'Filesystem'];

/** A reference to what a volume is filled from. */
export interface DataSource {
  apiGroup?: string | null | undefined;
  kind?: string | undefined;
  name?: string | undefined;
  namespace?: string | null | undefined;
}

/** The parts of a claim that are validated. */
export interface ClaimSpec {
  accessModes?: string[] | undefined;
  selector?: object | undefined;
  resources?:
    | {
        requests?: Record<string, string | undefined> | undefined;
        limits?: Record<string, string | undefined> | undefined;
      }
    | undefined;
  storageClassName?: string | undefined;
  volumeMode?: string | undefined;
  volumeName?: string | undefined;
  dataSource?: DataSource | undefined;
  dataSourceRef?: DataSource | undefined;
  volumeAttributesClassName?: string | undefined;
}

/** Returns the errors of the spec of a claim. `at` is its path. The requested size must be a valid quantity already. */
export function claimSpecErrors(spec: ClaimSpec, at: string): FieldError[] {
  const errors: FieldError[] = [];
  const modes = spec.accessModes ?? [];
  if (modes.length === 0) errors.push(required(`${at}.accessModes`, 'at least 1 access mode is required'));
  if (spec.selector !== undefined)
    errors.push(...validateLabelSelector(spec.selector as V1LabelSelector, `${at}.selector`));
  errors.push(...accessModeErrors(modes, `${at}.accessModes`));
  const size = spec.resources?.requests?.['storage'];
  if (size === undefined) errors.push(required(`${at}.resources[storage]`));
  else errors.push(...positiveQuantityErrors(`${at}.resources[storage]`, size));
  const { storageClassName, volumeMode, volumeAttributesClassName: attributesClass } = spec;
  if (!isBlank(storageClassName))
    errors.push(...invalidFor(`${at}.storageClassName`, storageClassName, dnsSubdomainErrors(storageClassName)));
  if (volumeMode !== undefined && !VOLUME_MODES.includes(volumeMode))
    errors.push(unsupportedValue(`${at}.volumeMode`, volumeMode, VOLUME_MODES));
  errors.push(...sourceErrors(spec, at));
  if (!isBlank(attributesClass))
    errors.push(...invalidFor(`${at}.volumeAttributesClassName`, attributesClass, dnsSubdomainErrors(attributesClass)));
  return errors;
}

/** Refuses unknown modes, and `ReadWriteOncePod` beside others. */
export function accessModeErrors(modes: readonly string[], field: string): FieldError[] {
  const errors = modes.flatMap((mode) =>
    ACCESS_MODES.includes(mode) ? [] : [unsupportedValue(field, mode, ACCESS_MODES)],
  );
  const others = modes.some((mode) => mode !== 'ReadWriteOncePod' && ACCESS_MODES.includes(mode));
  if (modes.includes('ReadWriteOncePod') && others) {
    errors.push(forbidden(field, 'may not use ReadWriteOncePod with other access modes'));
  }
  return errors;
}

/** Validates that a quantity is above zero. The quantity must be valid already. */
export function positiveQuantityErrors(field: string, quantity: string): FieldError[] {
  return parseQuantity(quantity).nano <= 0n ? [invalid(field, quantity, 'must be greater than zero')] : [];
}

function sourceErrors(spec: ClaimSpec, at: string): FieldError[] {
  const { dataSource, dataSourceRef } = spec;
  const errors: FieldError[] = [];
  if (dataSource !== undefined) errors.push(...oneSourceErrors(dataSource, `${at}.dataSource`));
  if (dataSourceRef !== undefined) errors.push(...oneSourceErrors(dataSourceRef, `${at}.dataSourceRef`));
  if (dataSource === undefined || dataSourceRef === undefined) return errors;
  if (!isBlank(dataSourceRef.namespace)) {
    errors.push(invalid(at, {}, 'may not be specified when dataSourceRef.namespace is specified'));
  } else if (!sameSource(dataSource, dataSourceRef)) errors.push(invalid(at, {}, 'must match dataSourceRef'));
  return errors;
}

function sameSource(a: DataSource, b: DataSource): boolean {
  return (a.apiGroup ?? null) === (b.apiGroup ?? null) && a.kind === b.kind && a.name === b.name;
}

function oneSourceErrors(source: DataSource, at: string): FieldError[] {
  const { name, kind, apiGroup, namespace } = source;
  const errors: FieldError[] = [];
  if (isBlank(name)) errors.push(required(`${at}.name`));
  if (isBlank(kind)) errors.push(required(`${at}.kind`));
  if (isBlank(apiGroup)) {
    if (kind !== 'PersistentVolumeClaim')
      errors.push(invalid(at, kind ?? '', "must be 'PersistentVolumeClaim' when referencing the default apiGroup"));
  } else errors.push(...invalidFor(`${at}.apiGroup`, apiGroup, dnsSubdomainErrors(apiGroup)));
  if (!isBlank(namespace)) errors.push(...invalidFor(`${at}.namespace`, namespace, dnsLabelErrors(namespace)));
  return errors;
}
