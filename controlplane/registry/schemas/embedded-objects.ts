/** Validates `apiVersion`, `kind` and `metadata` of the objects that a schema marks with `x-kubernetes-embedded-resource`. */
import { FieldError, invalid, memberPath, required } from '../../../api/meta/field-error.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { nameIsPathSegment, rfc1035LabelErrors } from '../../../api/meta/names.ts';
import { type JsonObject, type JsonValue, type ObjectMeta, parseApiVersion } from '../../../api/meta/object.ts';
import { validateMetadata } from '../../../api/meta/validation.ts';
import { itemsOf, type JsonSchema, memberSchema } from './json-schema.ts';

/** Returns the errors of the value, if it is an embedded object, and of the embedded objects within it. */
export function embeddedErrors(value: JsonValue, schema: JsonSchema, path: string): FieldError[] {
  const isEmbedded = isJsonObject(value) && schema['x-kubernetes-embedded-resource'] === true;
  return [...(isEmbedded ? identityErrors(value, path) : []), ...embeddedErrorsWithin(value, schema, path)];
}

/** Returns the errors of the embedded objects within the value, without its own. */
export function embeddedErrorsWithin(value: JsonValue, schema: JsonSchema, path: string): FieldError[] {
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
