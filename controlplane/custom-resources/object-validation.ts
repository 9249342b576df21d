/**
 * Validates a custom resource on a write: its schema, the metadata of embedded objects, its rules in CEL, and its scale. On an
 * update, errors of the schema and the rules are ignored for unchanged values (ratcheting).
 */
import { FieldError, invalid, memberPath, required } from '../../api/meta/field-error.ts';
import { nameIsPathSegment, rfc1035LabelErrors } from '../../api/meta/names.ts';
import { isJsonObject } from '../../api/meta/json-object.ts';
import {
  type JsonObject,
  type JsonValue,
  type KubeObject,
  type ObjectMeta,
  parseApiVersion,
} from '../../api/meta/object.ts';
import { validateMetadata } from '../../api/meta/validation.ts';
import type { ScaleSubresource } from './definition.ts';
import { validateScaleFields } from './custom-scale.ts';
import { Correlation } from './correlation.ts';
import { itemsOf, type JsonSchema, memberSchema } from './json-schema.ts';
import type { CompiledRules } from './rule-compilation.ts';
import { inTurns, type Pausing } from '../registry/pausing.ts';
import { ruleErrors } from './rule-validation.ts';
import { JunctionError } from './junction-error.ts';
import { repeatedItems, validateObject, validateValue } from './value-validation.ts';

interface ObjectValidator {
  readonly schema: JsonSchema;
  readonly rules: CompiledRules;
  readonly scale: ScaleSubresource | undefined;
}

/** The errors after which rules are not evaluated, because values may not have the types that the rules expect. */
const BLOCKING: ReadonlySet<string> = new Set([
  'FieldValueNotSupported',
  'FieldValueRequired',
  'FieldValueTooLong',
  'FieldValueTooMany',
  'FieldValueTypeInvalid',
]);
const NOT_CHECKED =
  'some validation rules were not checked because the object was invalid; correct the existing errors to complete validation';

interface ValidationOptions {
  /** Called for each rule without `oldSelf` that fails on an unchanged value, which is no error. */
  readonly warn?: (text: string) => void;
  /** Whether only `status` is written. Then the schema is checked for `status` alone, but the rules for the whole object. */
  readonly statusOnly?: boolean;
  /** Errors of the metadata, which the store reports. Rules are not evaluated after some of them. */
  readonly earlier?: readonly FieldError[];
}

/** Returns what `customObjectErrors` finds, and yields to the event loop at its pauses. */
export const validateCustomObjectInTurns = (
  ...args: Parameters<typeof customObjectErrors>
): FieldError[] | Promise<FieldError[]> => inTurns(customObjectErrors(...args));

/** Returns the errors of a write. Pauses between expensive rules, and between the steps for a large object. */
export function* customObjectErrors(
  validator: ObjectValidator,
  object: KubeObject,
  old: KubeObject | undefined,
  { warn, statusOnly = false, earlier = [] }: ValidationOptions = {},
): Pausing<FieldError[]> {
  const members = object as unknown as JsonObject;
  const before = old as unknown as JsonObject | undefined;
  const { schema, rules, scale } = validator;
  const isLarge = hasMoreValues(members, MANY_VALUES);
  if (isLarge) yield;
  const errors = statusOnly ? statusErrors(members, before, schema) : schemaErrors(members, before, schema);
  if (isLarge) yield;
  if (scale !== undefined) errors.push(...validateScaleFields(object, scale, { statusOnly }));
  if (!statusOnly) errors.push(...embeddedErrorsWithin(members, schema, ''));
  if (isLarge) yield;
  // An object that had duplicate items in a list may have any.
  if (before === undefined || repeatedItems(before, schema).length === 0)
    errors.push(...repeatedItems(members, schema));
  if (!rules.isEmpty) {
    if ([...earlier, ...errors].some(({ type }) => BLOCKING.has(type)))
      errors.push(invalid('<nil>', null, NOT_CHECKED));
    else errors.push(...(yield* ruleErrors(rules, members, before, { warn })));
  }
  return errors;
}

/** Objects with more values are validated in several turns of the event loop. */
const MANY_VALUES = 5000;

/** Whether the value contains more than `limit` values. Stops counting there. */
function hasMoreValues(value: JsonValue | undefined, limit: number): boolean {
  let left = limit;
  const count = (one: JsonValue | undefined): boolean => {
    left -= 1;
    if (typeof one !== 'object' || one === null) return left < 0;
    if (Array.isArray(one)) return one.some(count);
    // `Object.values` of a wide object would itself be expensive.
    for (const key in one) if (left < 0 || count(one[key])) return true;
    return left < 0;
  };
  return count(value);
}

function schemaErrors(object: JsonObject, old: JsonObject | undefined, schema: JsonSchema): FieldError[] {
  const errors = validateObject(object, schema);
  if (old === undefined) return errors;
  const correlation = new Correlation(schema);
  return errors.filter((error) => !correlation.isUnchanged(placeOf(error), object, old));
}

/**
 * Returns the errors of the status. kube-apiserver validates it by itself, so the messages have paths relative to the status,
 * and the fields have whole paths.
 */
function statusErrors(object: JsonObject, old: JsonObject | undefined, schema: JsonSchema): FieldError[] {
  const status = object['status'];
  const statusSchema = schema.properties?.['status'];
  if (status === undefined || statusSchema === undefined) return [];
  const before = old?.['status'];
  const correlation = new Correlation(statusSchema);
  return validateValue(status, statusSchema, '')
    .filter((error) => before === undefined || !correlation.isUnchanged(placeOf(error), status, before))
    .map(({ type, field, value, detail }) => {
      const path =
        field === '' || field === '<nil>' ? 'status' : field.startsWith('[') ? `status${field}` : `status.${field}`;
      return new FieldError(type, path, value, detail);
    });
}

/** Returns the path of the value that an error is about. Errors of `anyOf`, `not` and the like may name another field. */
const placeOf = (error: FieldError): string => (error instanceof JunctionError ? error.at : error.field);

/** Validates `apiVersion`, `kind` and `metadata` of embedded objects: of the value, if it is one, and of those within it. */
export function embeddedErrors(value: JsonValue, schema: JsonSchema, path: string): FieldError[] {
  const isEmbedded = isJsonObject(value) && schema['x-kubernetes-embedded-resource'] === true;
  return [...(isEmbedded ? identityErrors(value, path) : []), ...embeddedErrorsWithin(value, schema, path)];
}

function embeddedErrorsWithin(value: JsonValue, schema: JsonSchema, path: string): FieldError[] {
  const errors: FieldError[] = [];
  const items = itemsOf(schema);
  if (Array.isArray(value) && items !== undefined) {
    value.forEach((item, index) => errors.push(...embeddedErrors(item, items, `${path}[${index}]`)));
  }
  if (!isJsonObject(value)) return errors;
  for (const [name, member] of Object.entries(value)) {
    const inner = memberSchema(schema, name);
    if (inner === undefined || member === undefined) continue;
    const isProperty = schema.properties !== undefined && Object.hasOwn(schema.properties, name);
    const within = isProperty ? memberPath(path, name) : `${path}[${name}]`;
    errors.push(...embeddedErrors(member, inner, within));
  }
  return errors;
}

function identityErrors(object: JsonObject, path: string): FieldError[] {
  const at = (name: string): string => memberPath(path, name);
  const errors: FieldError[] = [];
  const { apiVersion, kind, metadata } = object;
  for (const [name, value] of Object.entries({ apiVersion, kind })) {
    if (value === undefined) errors.push(required(at(name)));
    else if (typeof value !== 'string') errors.push(invalid(at(name), value, 'must be a string'));
    else if (value === '') errors.push(invalid(at(name), value, 'must not be empty'));
  }
  if (typeof apiVersion === 'string' && apiVersion !== '' && parseApiVersion(apiVersion) === undefined) {
    errors.push(invalid(at('apiVersion'), apiVersion, `unexpected GroupVersion string: ${apiVersion}`));
  }
  if (typeof kind === 'string' && kind !== '') {
    const faults = rfc1035LabelErrors(kind.toLowerCase());
    const text = `may have mixed case, but should otherwise match: ${faults.join(',')}`;
    if (faults.length > 0) errors.push(invalid(at('kind'), kind, text));
  }
  if (isJsonObject(metadata)) {
    const meta = { ...metadata } as ObjectMeta;
    const rules = { namespaced: Boolean(meta.namespace), nameRule: nameIsPathSegment, builtIn: false };
    for (const error of validateMetadata({ ...meta, name: meta.name || 'fakename' }, rules)) {
      errors.push(new FieldError(error.type, at(error.field), error.value, error.detail));
    }
  }
  return errors;
}
