/**
 * Whether the schema of a definition can be served: structural (every value has one type, told outside of `allOf` and its
 * like), without what is not supported, and with defaults that fit it.
 */
import { RE2JS, RE2JSException } from 're2js';
import { FieldError, forbidden, invalid, notSupported, required } from '../../../api/meta/field-error.ts';
import { cloneJson } from '../../../api/meta/json-equality.ts';
import { itemsOf, type JsonSchema } from './json-schema.ts';
import { validateValue } from './value-validation.ts';

const TYPES = ['array', 'boolean', 'integer', 'number', 'object', 'string'];
const LIST_TYPES = ['atomic', 'set', 'map'];
const MAP_TYPES = ['atomic', 'granular'];
const UNSUPPORTED = ['$ref', 'id', 'definitions', 'dependencies', 'patternProperties', 'additionalItems'] as const;

/** `path` is that of the schema: `spec.versions[0].schema.openAPIV3Schema`. */
export function validateSchema(schema: JsonSchema, path: string): FieldError[] {
  const errors: FieldError[] = [];
  if (schema.type === undefined || schema.type === '')
    errors.push(required(`${path}.type`, 'must not be empty at the root'));
  else if (schema.type !== 'object') errors.push(invalid(`${path}.type`, schema.type, 'must be object at the root'));
  validateMetadataSchema(schema.properties?.['metadata'], path, errors);
  validateNode(schema, path, errors);
  return errors;
}

/** Only names may be restricted: the rest of metadata is the same for all objects. */
function validateMetadataSchema(metadata: JsonSchema | undefined, path: string, errors: FieldError[]): void {
  if (metadata === undefined) return;
  const names = Object.keys(metadata.properties ?? {});
  const known = new Set(['type', 'description', 'properties', 'required', 'x-kubernetes-validations']);
  const others = Object.keys(metadata).some((name) => !known.has(name));
  if (!others && names.every((name) => name === 'name' || name === 'generateName')) return;
  const text = 'must not specify anything other than name and generateName, but metadata is implicitly specified';
  errors.push(forbidden(`${path}.properties[metadata]`, text));
}

function validateNode(schema: JsonSchema, path: string, errors: FieldError[]): void {
  validateSupported(schema, path, errors);
  validateExtensions(schema, path, errors);
  validateDefault(schema, path, errors);
  validateInner(schema, path, errors);
  for (const junction of ['allOf', 'anyOf', 'oneOf'] as const) {
    schema[junction]?.forEach((one, index) => validateJunction(one, schema, `${path}.${junction}[${index}]`, errors));
  }
  if (schema.not !== undefined) validateJunction(schema.not, schema, `${path}.not`, errors);
}

function validateSupported(schema: JsonSchema, path: string, errors: FieldError[]): void {
  for (const name of UNSUPPORTED) {
    if (Object.hasOwn(schema, name)) errors.push(forbidden(`${path}.${name}`, `${name} is not supported`));
  }
  const { type, pattern } = schema;
  if (type === 'null') {
    errors.push(forbidden(`${path}.type`, 'type cannot be set to null, use nullable as an alternative'));
  } else if (type && !TYPES.includes(type)) errors.push(notSupported(`${path}.type`, type, TYPES));
  if (schema.uniqueItems === true) {
    const text = 'uniqueItems cannot be set to true since the runtime complexity becomes quadratic';
    errors.push(forbidden(`${path}.uniqueItems`, text));
  }
  if (schema.additionalProperties === false) {
    errors.push(forbidden(`${path}.additionalProperties`, 'additionalProperties cannot be set to false'));
  } else if (schema.additionalProperties !== undefined && Object.keys(schema.properties ?? {}).length > 0) {
    const text = 'additionalProperties and properties are mutual exclusive';
    errors.push(forbidden(`${path}.additionalProperties`, text));
  }
  if (Array.isArray(schema.items)) {
    errors.push(forbidden(`${path}.items`, 'items must be a schema object and not an array'));
  } else if (type === 'array' && schema.items === undefined)
    errors.push(required(`${path}.items`, 'must be specified'));
  if (pattern) validatePattern(pattern, path, errors);
}

function validatePattern(pattern: string, path: string, errors: FieldError[]): void {
  try {
    RE2JS.compile(pattern);
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error;
    const text = `must be a valid regular expression, but isn't: ${error.message}`;
    errors.push(invalid(`${path}.pattern`, pattern, text));
  }
}

function validateExtensions(schema: JsonSchema, path: string, errors: FieldError[]): void {
  const listType = schema['x-kubernetes-list-type'];
  const keys = schema['x-kubernetes-list-map-keys'] ?? [];
  const mapType = schema['x-kubernetes-map-type'];
  if (schema['x-kubernetes-preserve-unknown-fields'] === false) {
    errors.push(invalid(`${path}.x-kubernetes-preserve-unknown-fields`, false, 'must be true or undefined'));
  }
  if (listType !== undefined) {
    if (!LIST_TYPES.includes(listType))
      errors.push(notSupported(`${path}.x-kubernetes-list-type`, listType, LIST_TYPES));
    if (schema.type !== 'array') {
      const text = 'must be array if x-kubernetes-list-type is specified';
      errors.push(schema.type ? invalid(`${path}.type`, schema.type, text) : required(`${path}.type`, text));
    }
  }
  if (mapType !== undefined && !MAP_TYPES.includes(mapType)) {
    errors.push(notSupported(`${path}.x-kubernetes-map-type`, mapType, MAP_TYPES));
  }
  if (listType === 'map') validateListKeys(schema, keys, path, errors);
  else if (keys.length > 0) {
    const text = 'must be map if x-kubernetes-list-map-keys is non-empty';
    const field = `${path}.x-kubernetes-list-type`;
    errors.push(listType === undefined ? required(field, text) : invalid(field, listType, text));
  }
}

function validateListKeys(schema: JsonSchema, keys: readonly string[], path: string, errors: FieldError[]): void {
  if (keys.length === 0) {
    const text = 'must not be empty if x-kubernetes-list-type is map';
    errors.push(required(`${path}.x-kubernetes-list-map-keys`, text));
  }
  const items = itemsOf(schema);
  if (items === undefined) return;
  if (items.type !== 'object') {
    errors.push(
      invalid(`${path}.items.type`, items.type ?? '', "must be object if parent array's x-kubernetes-list-type is map"),
    );
  }
  for (const key of keys) {
    const inner = items.properties?.[key];
    if (inner === undefined) {
      const text = 'entries must all be names of item properties';
      errors.push(invalid(`${path}.x-kubernetes-list-map-keys`, keys, text));
    } else if (inner.default === undefined && items.required?.includes(key) !== true) {
      const text =
        'this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property';
      errors.push(required(`${path}.items.properties[${key}].default`, text));
    }
  }
}

/** A default must be what would be stored of it. */
function validateDefault(schema: JsonSchema, path: string, errors: FieldError[]): void {
  if (schema.default === undefined) return;
  for (const error of validateValue(cloneJson(schema.default), schema, '')) {
    const field = error.field === '' ? `${path}.default` : `${path}.default.${error.field}`;
    errors.push(new FieldError(error.type, field, error.value, error.detail));
  }
}

function validateInner(schema: JsonSchema, path: string, errors: FieldError[]): void {
  const enter = (inner: JsonSchema, at: string, what: string): void => {
    const typed = Boolean(inner.type) || inner['x-kubernetes-int-or-string'] === true;
    if (!typed && inner['x-kubernetes-preserve-unknown-fields'] !== true && !Object.hasOwn(inner, '$ref')) {
      errors.push(required(`${at}.type`, `must not be empty for specified ${what}`));
    }
    validateNode(inner, at, errors);
  };
  for (const [name, inner] of Object.entries(schema.properties ?? {}).sort(([a], [b]) => (a < b ? -1 : 1))) {
    enter(inner, `${path}.properties[${name}]`, 'object fields');
  }
  if (typeof schema.additionalProperties === 'object') {
    enter(schema.additionalProperties, `${path}.additionalProperties`, 'object fields');
  }
  const items = itemsOf(schema);
  if (items !== undefined) enter(items, `${path}.items`, 'array items');
}

const OUTSIDE_ONLY = ['type', 'additionalProperties', 'default', 'nullable', 'title', 'description'] as const;

/** What stands in `allOf` and the like may only narrow values, never describe them. */
function validateJunction(schema: JsonSchema, outer: JsonSchema | undefined, path: string, errors: FieldError[]): void {
  const intOrString = outer?.['x-kubernetes-int-or-string'] === true;
  for (const name of OUTSIDE_ONLY) {
    if (!Object.hasOwn(schema, name) || (name === 'type' && intOrString)) continue;
    errors.push(forbidden(`${path}.${name}`, 'must be empty to be structural'));
  }
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    const described = outer?.properties?.[name];
    validateJunction(inner, described, `${path}.properties[${name}]`, errors);
    if (outer !== undefined && described === undefined) {
      const root = path.slice(0, path.search(/\.(?:allOf|anyOf|oneOf|not)\b/));
      errors.push(required(`${root}.properties[${name}]`, `because it is defined in ${path}.properties[${name}]`));
    }
  }
  const items = itemsOf(schema);
  if (items !== undefined)
    validateJunction(items, outer === undefined ? undefined : itemsOf(outer), `${path}.items`, errors);
}
