/**
 * Validates the metadata of objects on create and on update. Names follow the kind's `NameRule`.
 */
import { forbidden, invalid, quote, required, tooLong, type FieldError } from './field-error.ts';
import { jsonEqual } from './json-equality.ts';
import { type NameRule, nameIsLabel, qualifiedNameErrors } from './names.ts';
import { parseApiVersion, type ManagedFieldsEntry, type ObjectMeta, type OwnerReference } from './object.ts';
import { validateLabels } from './selector.ts';
import { FOREGROUND_FINALIZER, ORPHAN_FINALIZER } from './well-known-labels.ts';

/** The limit on keys and values of all annotations together. */
export const MAX_ANNOTATIONS_BYTES = 256 * 1024;
const MAX_MANAGER_BYTES = 128;
const MAX_SUBRESOURCE_BYTES = 256;

/** The names of finalizers that need no domain. */
export const STANDARD_FINALIZERS: ReadonlySet<string> = new Set(['kubernetes', ORPHAN_FINALIZER, FOREGROUND_FINALIZER]);

interface MetadataRules {
  readonly namespaced: boolean;
  readonly nameRule: NameRule;
  /** Whether only the name that was made of `generateName` is validated. */
  readonly anyPrefix?: boolean | undefined;
  /** Whether finalizers without a domain must be known ones. False for custom resources. */
  readonly builtIn?: boolean;
  /** The path is `metadata`, unless the object is embedded in another one. */
  readonly path?: string;
}

/** The errors of the parts that are validated alike on create and on update. */
interface PartErrors {
  readonly beforeFinalizers: readonly FieldError[];
  readonly managedFields: readonly FieldError[];
}

/** Returns the errors of parts of the metadata. `path` is the path of the metadata. */
export function partErrors(meta: ObjectMeta, path = 'metadata'): PartErrors {
  return {
    beforeFinalizers: [
      ...validateLabels(meta.labels, `${path}.labels`),
      ...validateAnnotations(meta.annotations, `${path}.annotations`),
      ...validateOwnerReferences(meta.ownerReferences, `${path}.ownerReferences`),
    ],
    managedFields: validateManagedFields(meta.managedFields, `${path}.managedFields`),
  };
}

/** Validates the metadata of a new object. */
export function validateMetadata(
  meta: ObjectMeta,
  rules: MetadataRules,
  parts = partErrors(meta, rules.path),
): FieldError[] {
  const path = rules.path ?? 'metadata';
  const errors: FieldError[] = [];
  if (meta.generateName && rules.anyPrefix !== true) {
    for (const text of rules.nameRule(meta.generateName, { asPrefix: true })) {
      errors.push(invalid(`${path}.generateName`, meta.generateName, text));
    }
  }
  if (!meta.name) errors.push(required(`${path}.name`, 'name or generateName is required'));
  else {
    for (const text of rules.nameRule(meta.name, { asPrefix: false })) {
      errors.push(invalid(`${path}.name`, meta.name, text));
    }
  }
  errors.push(...validateNamespace(meta.namespace ?? '', rules.namespaced, path));
  if ((meta.generation ?? 0) < 0) {
    errors.push(invalid(`${path}.generation`, meta.generation, 'must be greater than or equal to 0'));
  }
  errors.push(
    ...parts.beforeFinalizers,
    ...validateFinalizers(meta.finalizers, `${path}.finalizers`),
    ...parts.managedFields,
  );
  if (rules.builtIn !== false) errors.push(...validateBuiltInFinalizers(meta.finalizers, `${path}.finalizers`));
  return errors;
}

function validateNamespace(namespace: string, namespaced: boolean, path: string): FieldError[] {
  if (!namespaced) return namespace === '' ? [] : [forbidden(`${path}.namespace`, 'not allowed on this type')];
  if (namespace === '') return [required(`${path}.namespace`)];
  return nameIsLabel(namespace, { asPrefix: false }).map((text) => invalid(`${path}.namespace`, namespace, text));
}

interface MetadataUpdateRules {
  readonly builtIn?: boolean;
  readonly path?: string;
}

/** Validates the metadata of an update against that of the stored object. */
export function validateMetadataUpdate(
  next: ObjectMeta,
  old: ObjectMeta,
  rules: MetadataUpdateRules,
  parts = partErrors(next, rules.path),
): FieldError[] {
  const path = rules.path ?? 'metadata';
  const errors: FieldError[] = [];
  if (old.deletionTimestamp !== undefined) {
    const formerFinalizers = new Set(old.finalizers);
    const added = [...new Set(next.finalizers)].filter((name) => !formerFinalizers.has(name)).sort();
    if (added.length > 0) {
      const shown = `[]string{${added.map(quote).join(', ')}}`;
      const text = `no new finalizers can be added if the object is being deleted, found new finalizers ${shown}`;
      errors.push(forbidden(`${path}.finalizers`, text));
    }
  }
  if (!next.resourceVersion) {
    errors.push(invalid(`${path}.resourceVersion`, next.resourceVersion ?? '', 'must be specified for an update'));
  }
  if ((next.generation ?? 0) < (old.generation ?? 0)) {
    errors.push(invalid(`${path}.generation`, next.generation ?? 0, 'must not be decremented'));
  }
  errors.push(
    ...validateImmutable(next.name ?? '', old.name ?? '', `${path}.name`),
    ...validateImmutable(next.namespace ?? '', old.namespace ?? '', `${path}.namespace`),
    ...validateImmutable(next.uid ?? '', old.uid ?? '', `${path}.uid`),
    ...validateImmutable(next.creationTimestamp ?? null, old.creationTimestamp ?? null, `${path}.creationTimestamp`),
    ...validateImmutable(next.deletionTimestamp ?? null, old.deletionTimestamp ?? null, `${path}.deletionTimestamp`),
    ...validateImmutable(
      next.deletionGracePeriodSeconds ?? null,
      old.deletionGracePeriodSeconds ?? null,
      `${path}.deletionGracePeriodSeconds`,
    ),
    ...parts.beforeFinalizers,
    ...parts.managedFields,
  );
  if (rules.builtIn !== false) errors.push(...validateBuiltInFinalizers(next.finalizers, `${path}.finalizers`));
  return errors;
}

/** Refuses a change of a field. */
export function validateImmutable(next: unknown, old: unknown, field: string): FieldError[] {
  return jsonEqual(next, old) ? [] : [invalid(field, next, 'field is immutable')];
}

/** Validates keys and the total size. */
export function validateAnnotations(
  annotations: Readonly<Record<string, string>> | null | undefined,
  path: string,
): FieldError[] {
  const errors: FieldError[] = [];
  let sizeBytes = 0;
  const faulty: string[] = [];
  for (const [key, value] of Object.entries(annotations ?? {})) {
    if (qualifiedNameErrors(key.toLowerCase()).length > 0) faulty.push(key);
    sizeBytes += Buffer.byteLength(key) + Buffer.byteLength(value);
  }
  for (const key of faulty.sort())
    for (const text of qualifiedNameErrors(key.toLowerCase())) errors.push(invalid(path, key, text));
  if (sizeBytes > MAX_ANNOTATIONS_BYTES) errors.push(tooLong(path, MAX_ANNOTATIONS_BYTES));
  return errors;
}

function validateOwnerReferences(references: readonly OwnerReference[] | null | undefined, path: string): FieldError[] {
  const errors: FieldError[] = [];
  let controller: string | undefined;
  // Every error shows all references, so they share one list.
  const shown = (references ?? []).map(inFieldOrder);
  for (const reference of references ?? []) {
    errors.push(...validateOwnerReference(reference, path));
    if (reference.controller !== true) continue;
    const current = `${reference.kind}/${reference.name}`;
    if (controller === undefined) {
      controller = current;
      continue;
    }
    const text = `Only one reference can have Controller set to true. Found "true" in references for ${controller} and ${current}`;
    errors.push(invalid(path, shown, text));
  }
  return errors;
}

/** Orders the fields as kube-apiserver's encoder does. */
function inFieldOrder(reference: OwnerReference): OwnerReference {
  const { apiVersion, kind, name, uid, controller, blockOwnerDeletion } = reference;
  return {
    apiVersion,
    kind,
    name,
    uid,
    ...(controller === undefined ? {} : { controller }),
    ...(blockOwnerDeletion === undefined ? {} : { blockOwnerDeletion }),
  };
}

function validateOwnerReference(reference: OwnerReference, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const apiVersion = reference.apiVersion ?? '';
  const version = parseApiVersion(apiVersion);
  if (!version?.version) errors.push(invalid(`${path}.apiVersion`, apiVersion, 'version must not be empty'));
  if (!reference.kind) errors.push(invalid(`${path}.kind`, '', 'must not be empty'));
  if (!reference.name) errors.push(invalid(`${path}.name`, '', 'must not be empty'));
  if (!reference.uid) errors.push(invalid(`${path}.uid`, '', 'must not be empty'));
  if (apiVersion === 'v1' && reference.kind === 'Event') {
    errors.push(invalid(path, inFieldOrder(reference), '/v1, Kind=Event is disallowed from being an owner'));
  }
  return errors;
}

function validateFinalizers(finalizers: readonly string[] | null | undefined, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const names = finalizers ?? [];
  // The error path has no index, unlike that of the finalizers that lack a domain.
  for (const name of names) for (const text of qualifiedNameErrors(name)) errors.push(invalid(path, name, text));
  if (names.includes(ORPHAN_FINALIZER) && names.includes(FOREGROUND_FINALIZER)) {
    errors.push(invalid(path, names, 'finalizer orphan and foregroundDeletion cannot be both set'));
  }
  return errors;
}

function validateBuiltInFinalizers(finalizers: readonly string[] | null | undefined, path: string): FieldError[] {
  return (finalizers ?? []).flatMap((name, index) => {
    if (name.includes('/') || STANDARD_FINALIZERS.has(name)) return [];
    const text = 'name is neither a standard finalizer name nor is it fully qualified';
    return [invalid(`${path}[${index}]`, name, text)];
  });
}

function validateManagedFields(entries: readonly ManagedFieldsEntry[] | null | undefined, path: string): FieldError[] {
  const errors: FieldError[] = [];
  (entries ?? []).forEach((entry, index) => {
    const at = `${path}[${index}]`;
    const operation = entry.operation ?? '';
    if (operation !== 'Apply' && operation !== 'Update') {
      errors.push(invalid(`${at}.operation`, operation, 'must be `Apply` or `Update`'));
    }
    if (entry.fieldsType && entry.fieldsType !== 'FieldsV1') {
      errors.push(invalid(`${at}.fieldsType`, entry.fieldsType, 'must be `FieldsV1`'));
    }
    errors.push(...validateFieldManager(entry.manager ?? '', `${at}.manager`));
    if (Buffer.byteLength(entry.subresource ?? '') > MAX_SUBRESOURCE_BYTES) {
      errors.push(tooLong(`${at}.subresource`, MAX_SUBRESOURCE_BYTES));
    }
  });
  return errors;
}

/** Validates the name of a field manager. */
function validateFieldManager(manager: string, field: string): FieldError[] {
  const errors: FieldError[] = [];
  if (Buffer.byteLength(manager) > MAX_MANAGER_BYTES) errors.push(tooLong(field, MAX_MANAGER_BYTES));
  if (ALL_PRINTABLE.test(manager)) return errors;
  let position = 0;
  for (const char of manager) {
    if (!isPrintable(char)) {
      const text = `invalid character ${codePointText(char)} (at position ${position})`;
      errors.push(invalid(field, manager, text));
    }
    position += Buffer.byteLength(char);
  }
  return errors;
}

/** Matches letters, marks, numbers, punctuation, symbols and the plain space. */
const ALL_PRINTABLE = /^[ \p{L}\p{M}\p{N}\p{P}\p{S}]*$/u;
const isPrintable = (char: string): boolean => ALL_PRINTABLE.test(char);

function codePointText(char: string): string {
  return `U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;
}
