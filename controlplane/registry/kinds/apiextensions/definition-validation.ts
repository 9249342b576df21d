/**
 * Validates CustomResourceDefinitions. Fields that are the same in all versions have error paths of the old single-version form
 * (`spec.validation`), like in kube-apiserver.
 */
import { forbidden, invalid, notSupported, required, type FieldError } from '../../../../api/meta/field-error.ts';
import { withinBudget } from '../../../../api/meta/validation-effort.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import { dnsSubdomainErrors, type NameRule, nameIsSubdomain, rfc1035LabelErrors } from '../../../../api/meta/names.ts';
import { validateImmutable } from '../../../../api/meta/validation.ts';
import {
  approvalOf,
  APPROVED_ANNOTATION,
  type Definition,
  type DefinitionConversion,
  type DefinitionNames,
  type DefinitionVersion,
  isProtectedGroup,
  isTrue,
  type PrinterColumn,
  type Subresources,
} from './definition.ts';
import { webhookClientErrors } from '../admissionregistration/webhook-client.ts';
import { validateCaBundle } from './ca-bundle.ts';
import { innerSchemas, type JsonSchema } from '../../schemas/json-schema.ts';
import { selectableFieldErrors } from '../../schemas/selectable-fields.ts';
import { type SchemaPlace, validateSchema } from '../../schemas/schema-validation.ts';

type Spec = Definition['spec'];

/** Returns the rule for the name of a definition, which consists of its plural and its group. */
export function definitionNameRule({ spec }: Definition): NameRule {
  const wanted = `${spec.names.plural}.${spec.group}`;
  return (name, form) => [
    ...nameIsSubdomain(name, form),
    ...(name === wanted ? [] : ['must be spec.names.plural+"."+spec.group']),
  ];
}

/** Returns all errors of a new definition except those of its metadata. */
export function validateDefinition(definition: Definition): FieldError[] {
  const { spec } = definition;
  const errors = [...validateSpec(spec, undefined), ...validateStatus(definition)];
  return [...errors, ...validateApproval(definition, undefined), ...validatePreserving(spec, undefined)];
}

/** Validates an update of the status. The stored versions are validated with the spec only. */
export function validateDefinitionStatus({ status }: Definition): FieldError[] {
  return status?.acceptedNames === undefined ? [] : validateNames(status.acceptedNames, 'status.acceptedNames');
}

/** Returns all errors of an update; immutable fields are compared with `old`. */
export function validateDefinitionUpdate(definition: Definition, old: Definition): FieldError[] {
  const { spec } = definition;
  const errors = [...validateSpec(spec, old.spec), ...validateCaBundle(definition, old)];
  if (isTrue(old, 'Established')) {
    errors.push(
      ...validateImmutable(spec.scope, old.spec.scope, 'spec.scope'),
      ...validateImmutable(spec.names.kind, old.spec.names.kind, 'spec.names.kind'),
    );
  }
  errors.push(
    ...validateImmutable(spec.group, old.spec.group, 'spec.group'),
    ...validateImmutable(spec.names.plural, old.spec.names.plural, 'spec.names.plural'),
  );
  errors.push(...validateStatus(definition), ...validateApproval(definition, old));
  return [...errors, ...validatePreserving(spec, old.spec)];
}

/** Validates the spec of a definition. All versions share one budget of time. */
const validateSpec = (spec: Spec, old: Spec | undefined): FieldError[] => withinBudget(() => specErrors(spec, old));

/** Returns the errors of a spec. `old` is that of the stored definition. */
function specErrors(spec: Spec, old: Spec | undefined): FieldError[] {
  const errors: FieldError[] = [];
  if (spec.group === '') errors.push(required('spec.group'));
  else {
    const texts = dnsSubdomainErrors(spec.group);
    if (texts.length > 0) errors.push(invalid('spec.group', spec.group, texts.join(',')));
    else if (!spec.group.includes('.')) {
      errors.push(invalid('spec.group', spec.group, 'should be a domain with at least one dot'));
    }
  }
  errors.push(...oneOf('spec.scope', spec.scope, ['Cluster', 'Namespaced']));
  const shared = hoisted(spec);
  errors.push(...validateVersions(spec, shared.versions, old));
  for (const name of ['plural', 'singular', 'kind', 'listKind'] as const) {
    if ((spec.names[name] ?? '') === '') errors.push(required(`spec.names.${name}`));
  }
  errors.push(...validateNames(spec.names, 'spec.names'));
  const [first] = spec.versions;
  const place = { path: 'spec', schemaPath: 'spec.validation.openAPIV3Schema' };
  const hasStatus = spec.versions.some((version) => version.subresources?.status !== undefined);
  const isKnown = first !== undefined && isUnchanged(first, old);
  errors.push(...validateVersionParts(shared.shared, { ...place, hasStatus, isKnown }));
  if (spec.preserveUnknownFields === true && (spec.conversion?.strategy ?? 'None') !== 'None') {
    const why = 'must be None if spec.preserveUnknownFields is true';
    errors.push(invalid('spec.conversion.strategy', spec.conversion?.strategy, why));
  }
  errors.push(...validateConversion(spec.conversion));
  return errors;
}

/** Whether the stored definition has the same schema in this version. */
function isUnchanged(version: DefinitionVersion, old: Spec | undefined): boolean {
  const before = old?.versions.find(({ name }) => name === version.name);
  return before !== undefined && jsonEqual(before.schema, version.schema);
}

function validatePreserving(spec: Spec, old: Spec | undefined): FieldError[] {
  if (spec.preserveUnknownFields !== true || old?.preserveUnknownFields === true) return [];
  const text =
    'cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead';
  return [invalid('spec.preserveUnknownFields', true, text)];
}

function oneOf(field: string, value: string, values: readonly string[]): FieldError[] {
  if (value === '') return [required(field)];
  return values.includes(value) ? [] : [notSupported(field, value, values)];
}

interface Parts {
  readonly schema?: JsonSchema | undefined;
  readonly subresources?: Subresources | undefined;
  readonly columns?: readonly PrinterColumn[] | undefined;
  readonly selectable?: readonly { readonly jsonPath: string }[] | undefined;
}

/** Moves fields that are the same in all versions to the top level, so that each error is reported once. */
function hoisted(spec: Spec): { readonly shared: Parts; readonly versions: readonly Parts[] } {
  const all: Parts[] = spec.versions.map((version) => ({
    schema: version.schema?.openAPIV3Schema,
    subresources: version.subresources,
    columns: version.additionalPrinterColumns,
    selectable: version.selectableFields,
  }));
  const [first] = all;
  if (first === undefined) return { shared: {}, versions: all };
  const same = (name: keyof Parts): boolean => all.every((parts) => jsonEqual(parts[name], first[name]));
  const names = (['schema', 'subresources', 'columns', 'selectable'] as const).filter(same);
  const taken = new Set<string>(names);
  return {
    shared: Object.fromEntries(names.map((name) => [name, first[name]])),
    versions: all.map((parts) => Object.fromEntries(Object.entries(parts).filter(([name]) => !taken.has(name)))),
  };
}

function validateVersions(spec: Spec, inner: readonly Parts[], old: Spec | undefined): FieldError[] {
  const errors: FieldError[] = [];
  const { versions } = spec;
  versions.forEach((version, index) => {
    if (version.schema?.openAPIV3Schema === undefined)
      errors.push(required(`spec.versions[${index}].schema.openAPIV3Schema`));
  });
  if (spec.preserveUnknownFields === true && versions.some(({ schema }) => hasDefault(schema?.openAPIV3Schema))) {
    const why = 'must be false in order to use defaults in the schema';
    errors.push(invalid('spec.preserveUnknownFields', true, why));
  }
  versions.forEach((version, index) => {
    const path = `spec.versions[${index}]`;
    const texts = rfc1035LabelErrors(version.name);
    if (texts.length > 0) errors.push(invalid(`${path}.name`, version.name, texts.join(',')));
    errors.push(...validateDeprecation(version, path));
    const hasStatus = version.subresources?.status !== undefined;
    const place = { path, schemaPath: `${path}.schema.openAPIV3Schema`, hasStatus, isKnown: isUnchanged(version, old) };
    errors.push(...validateVersionParts(inner[index] ?? {}, place));
  });
  const shown = versions.map((version, index) => goForm(version, inner[index] ?? {}));
  if (new Set(versions.map(({ name }) => name)).size < versions.length) {
    errors.push(invalid('spec.versions', shown, 'must contain unique version names'));
  }
  if (versions.filter(({ storage }) => storage).length !== 1) {
    errors.push(invalid('spec.versions', shown, 'must have exactly one version marked as storage version'));
  }
  const [first] = versions;
  const texts = first === undefined || first.name === '' ? [] : rfc1035LabelErrors(first.name);
  if (texts.length > 0) errors.push(invalid('spec.version', first?.name, texts.join(',')));
  return errors;
}

function hasDefault(schema: JsonSchema | undefined): boolean {
  if (schema === undefined) return false;
  return schema.default !== undefined || [...innerSchemas(schema)].some(hasDefault);
}

/** Returns the internal form of a version, which kube-apiserver prints in messages. */
function goForm(version: DefinitionVersion, inner: Parts): object {
  return {
    Name: version.name,
    Served: version.served,
    Storage: version.storage,
    Deprecated: version.deprecated ?? false,
    DeprecationWarning: version.deprecationWarning ?? null,
    Schema: inner.schema === undefined ? null : { OpenAPIV3Schema: inner.schema },
    Subresources: inner.subresources ?? null,
    AdditionalPrinterColumns: inner.columns ?? null,
    SelectableFields: inner.selectable ?? null,
  };
}

/** The maximum number of bytes of a deprecation warning. */
const MAX_WARNING_BYTES = 256;

function validateDeprecation(version: DefinitionVersion, path: string): FieldError[] {
  const text = version.deprecationWarning;
  if (text === undefined) return [];
  const texts: string[] = [];
  if (version.deprecated !== true) texts.push('can only be set for deprecated versions');
  else {
    if (Buffer.byteLength(text) > MAX_WARNING_BYTES) texts.push(`must be <= ${MAX_WARNING_BYTES} characters long`);
    if (text === '') texts.push('must not be an empty string');
    const wrong = /[^\P{C}]|[^\S ]/u.exec(text);
    if (wrong !== null) {
      const index = Buffer.byteLength(text.slice(0, wrong.index));
      texts.push(`must only contain printable UTF-8 characters; non-printable character found at index ${index}`);
    }
  }
  return texts.map((why) => invalid(`${path}.deprecationWarning`, text, why));
}

interface PartsPlace extends SchemaPlace {
  readonly path: string;
}

function validateVersionParts(parts: Parts, place: PartsPlace): FieldError[] {
  const { path } = place;
  const errors = parts.schema === undefined ? [] : validateSchema(parts.schema, place);
  if (parts.subresources?.scale !== undefined) errors.push(...validateScale(parts.subresources, path));
  parts.columns?.forEach((column, index) =>
    errors.push(...validateColumn(column, `${path}.additionalPrinterColumns[${index}]`)),
  );
  errors.push(...selectableFieldErrors(parts.selectable ?? [], parts.schema, path));
  return errors;
}

const NOT_SIMPLE = 'must be a simple json path starting with .';

function validateScale({ scale }: Subresources, path: string): FieldError[] {
  if (scale === undefined) return [];
  const at = `${path}.subresources.scale`;
  const under = (name: string, value: string, roots: readonly string[], text: string): FieldError[] => {
    const field = `${at}.${name}`;
    if (value === '') return [required(field)];
    if (!value.startsWith('.')) return [invalid(field, value, NOT_SIMPLE)];
    return roots.some((root) => value.startsWith(root)) ? [] : [invalid(field, value, text)];
  };
  const { specReplicasPath, statusReplicasPath, labelSelectorPath } = scale;
  const errors = under('specReplicasPath', specReplicasPath, ['.spec.'], 'should be a json path under .spec');
  errors.push(...under('statusReplicasPath', statusReplicasPath, ['.status.'], 'should be a json path under .status'));
  if (labelSelectorPath !== undefined && labelSelectorPath !== '') {
    const text = 'should be a json path under either .spec or .status';
    errors.push(...under('labelSelectorPath', labelSelectorPath, ['.spec.', '.status.'], text));
  }
  return errors;
}

const COLUMN_TYPES = ['boolean', 'date', 'integer', 'number', 'string'];
const COLUMN_FORMATS = ['byte', 'date', 'date-time', 'double', 'float', 'int32', 'int64', 'password'];

function validateColumn(column: PrinterColumn, path: string): FieldError[] {
  const errors: FieldError[] = [];
  if (column.name === '') errors.push(required(`${path}.name`));
  const types = `must be one of ${COLUMN_TYPES.join(',')}`;
  if (column.type === '') errors.push(required(`${path}.type`, types));
  else if (!COLUMN_TYPES.includes(column.type)) errors.push(invalid(`${path}.type`, column.type, types));
  const { format = '' } = column;
  if (format !== '' && !COLUMN_FORMATS.includes(format)) {
    errors.push(invalid(`${path}.format`, format, `must be one of ${COLUMN_FORMATS.join(',')}`));
  }
  if (column.jsonPath === '') errors.push(required(`${path}.JSONPath`));
  else if (!column.jsonPath.startsWith('.')) errors.push(invalid(`${path}.JSONPath`, column.jsonPath, NOT_SIMPLE));
  return errors;
}

function validateNames(names: DefinitionNames, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const each = (field: string, value: string): void => {
    const texts = rfc1035LabelErrors(value);
    if (texts.length > 0) errors.push(invalid(field, value, texts.join(',')));
  };
  const label = (field: string, value = ''): void => {
    if (value !== '') each(field, value);
  };
  const mixedCase = (field: string, value: string | undefined): void => {
    if ((value ?? '') === '') return;
    const texts = rfc1035LabelErrors((value ?? '').toLowerCase());
    if (texts.length > 0) {
      errors.push(invalid(field, value, `may have mixed case, but should otherwise match: ${texts.join(',')}`));
    }
  };
  label(`${path}.plural`, names.plural);
  label(`${path}.singular`, names.singular);
  mixedCase(`${path}.kind`, names.kind);
  mixedCase(`${path}.listKind`, names.listKind);
  names.shortNames?.forEach((name, index) => each(`${path}.shortNames[${index}]`, name));
  if (names.kind !== '' && names.kind === names.listKind) {
    errors.push(invalid(`${path}.listKind`, names.listKind, 'kind and listKind may not be the same'));
  }
  names.categories?.forEach((name, index) => each(`${path}.categories[${index}]`, name));
  return errors;
}

function validateConversion(conversion: DefinitionConversion | undefined): FieldError[] {
  if (conversion === undefined) return [];
  const path = 'spec.conversion';
  const errors = oneOf(`${path}.strategy`, conversion.strategy, ['None', 'Webhook']);
  const { webhook } = conversion;
  const versions = webhook?.conversionReviewVersions ?? [];
  if (conversion.strategy !== 'Webhook') {
    const text = 'should not be set when strategy is not set to Webhook';
    if (webhook?.clientConfig !== undefined) errors.push(forbidden(`${path}.webhookClientConfig`, text));
    if (versions.length > 0) errors.push(forbidden(`${path}.conversionReviewVersions`, text));
    return errors;
  }
  const client = `${path}.webhookClientConfig`;
  const config = webhook?.clientConfig;
  if (config === undefined) errors.push(required(client, 'required when strategy is set to Webhook'));
  else {
    const { url, service } = config;
    errors.push(...webhookClientErrors(client, { url, service: service && { port: 443, ...service } }));
  }
  const field = `${path}.conversionReviewVersions`;
  if (versions.length === 0) return [...errors, required(field)];
  versions.forEach((version, index) => {
    const at = `${field}[${index}]`;
    if (versions.indexOf(version) < index) errors.push(invalid(at, version, 'duplicate version'));
    else for (const text of rfc1035LabelErrors(version)) errors.push(invalid(at, version, text));
  });
  if (!versions.some((version) => version === 'v1' || version === 'v1beta1')) {
    errors.push(invalid(field, versions, 'must include at least one of v1, v1beta1'));
  }
  return errors;
}

function validateStatus(definition: Definition): FieldError[] {
  const { status, spec } = definition;
  return [
    ...validateDefinitionStatus(definition),
    ...validateStoredVersions(status?.storedVersions ?? [], spec.versions),
  ];
}

function validateStoredVersions(stored: readonly string[], versions: readonly DefinitionVersion[]): FieldError[] {
  const field = 'status.storedVersions';
  if (stored.length === 0) return [invalid(field, null, 'must have at least one stored version')];
  const errors: FieldError[] = [];
  // A stored version stands for one version only, also if two have its name.
  const unmatched = new Set(stored);
  for (const { name, storage } of versions) {
    if (!unmatched.delete(name) && storage)
      errors.push(invalid(field, stored, `must have the storage version ${name}`));
  }
  stored.forEach((name, index) => {
    if (versions.some((version) => version.name === name)) return;
    const text = `missing from spec.versions; ${name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in ${name} and removes ${name} from status.storedVersions`;
    errors.push(invalid(`${field}[${index}]`, name, text));
  });
  return errors;
}

/** Validates that a definition of a protected group is approved. An update is accepted if the approval has the same state. */
function validateApproval(definition: Definition, old: Definition | undefined): FieldError[] {
  if (!isProtectedGroup(definition.spec.group)) return [];
  if (old !== undefined && approvalOf(old) === approvalOf(definition)) return [];
  const field = `metadata.annotations[${APPROVED_ANNOTATION}]`;
  const see = 'see https://github.com/kubernetes/enhancements/pull/1111';
  const state = approvalOf(definition);
  if (state === 'missing') {
    return [required(field, `protected groups must have approval annotation "${APPROVED_ANNOTATION}", ${see}`)];
  }
  if (state !== 'invalid') return [];
  const value = definition.metadata.annotations?.[APPROVED_ANNOTATION];
  const text = `protected groups must have approval annotation "${APPROVED_ANNOTATION}" with either a URL or a reason starting with "unapproved", ${see}`;
  return [invalid(field, value, text)];
}
