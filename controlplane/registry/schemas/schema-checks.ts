/**
 * Checks a schema for what does not concern its structure: unsupported keywords, contradictory extensions, and the format of
 * rules.
 */
import {
  type FieldError,
  forbidden,
  invalid,
  notSupported,
  required,
  unsupportedValue,
} from '../../../api/meta/field-error.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { fieldPathError } from './field-path.ts';
import { itemsOf, type JsonSchema } from './json-schema.ts';

const TYPES = ['array', 'boolean', 'integer', 'number', 'object', 'string'];
const LIST_TYPES = ['atomic', 'set', 'map'];
const MAP_TYPES = ['atomic', 'granular'];
const REASONS = ['FieldValueDuplicate', 'FieldValueForbidden', 'FieldValueInvalid', 'FieldValueRequired'];
const UNSUPPORTED = ['id', 'additionalItems', 'patternProperties', 'definitions', 'dependencies', '$ref'] as const;

/** A rule as the definition has it. */
export interface RuleText {
  readonly rule?: string;
  readonly message?: string;
  readonly messageExpression?: string;
  readonly reason?: string;
  readonly fieldPath?: string;
  readonly optionalOldSelf?: boolean;
}

/** The position of a value in the schema. */
export interface Place {
  readonly path: string;
  /** The reason why no default is allowed here. */
  readonly noDefault?: string;
  readonly insideMetadata?: boolean;
}

/** Whether the value of a keyword is a map that counts as absent because it is empty. */
function isEmptyMap(name: string, schema: JsonSchema): boolean {
  if (name !== 'patternProperties' && name !== 'definitions') return false;
  const value = (schema as Readonly<Record<string, unknown>>)[name];
  return isJsonObject(value) && Object.keys(value).length === 0;
}

/** Validates the keywords of one level of a schema. The errors are in kube-apiserver's order. */
export function keywordErrors(schema: JsonSchema, { path, noDefault, insideMetadata = false }: Place): FieldError[] {
  const errors: FieldError[] = [];
  const { type } = schema;
  if (type && !TYPES.includes(type)) errors.push(notSupported(`${path}.type`, type, TYPES));
  if (schema.default !== undefined && noDefault !== undefined) {
    errors.push(forbidden(`${path}.default`, `must not be set ${noDefault}`));
  }
  for (const name of UNSUPPORTED) {
    if (Object.hasOwn(schema, name) && !isEmptyMap(name, schema)) {
      errors.push(forbidden(`${path}.${name}`, `${name} is not supported`));
    }
  }
  if (type === 'null') {
    errors.push(forbidden(`${path}.type`, 'type cannot be set to null, use nullable as an alternative'));
  }
  if (Array.isArray(schema.items)) {
    errors.push(forbidden(`${path}.items`, 'items must be a schema object and not an array'));
  }
  if (insideMetadata && schema['x-kubernetes-embedded-resource'] === true) {
    errors.push(forbidden(`${path}.x-kubernetes-embedded-resource`, 'must not be used inside of resource meta'));
  }
  if (schema.uniqueItems === true) {
    const text = 'uniqueItems cannot be set to true since the runtime complexity becomes quadratic';
    errors.push(forbidden(`${path}.uniqueItems`, text));
  }
  const { additionalProperties } = schema;
  const further = additionalProperties !== undefined && additionalProperties !== true;
  if (further && Object.keys(schema.properties ?? {}).length > 0) {
    const text = 'additionalProperties and properties are mutual exclusive';
    errors.push(forbidden(`${path}.additionalProperties`, text));
  }
  return errors;
}

/** Returns the errors of the extensions of one schema, without those of the schemas inside. */
export function extensionErrors(schema: JsonSchema, path: string): FieldError[] {
  const errors: FieldError[] = [];
  if (schema['x-kubernetes-preserve-unknown-fields'] === false) {
    errors.push(invalid(`${path}.x-kubernetes-preserve-unknown-fields`, false, 'must be true or undefined'));
  }
  const mapType = schema['x-kubernetes-map-type'];
  if (mapType !== undefined) {
    errors.push(...typeErrors(schema, 'object', 'x-kubernetes-map-type', path));
    if (!MAP_TYPES.includes(mapType)) errors.push(notSupported(`${path}.x-kubernetes-map-type`, mapType, MAP_TYPES));
  }
  errors.push(...listTypeErrors(schema, path));
  (schema['x-kubernetes-validations'] ?? []).forEach((rule, index) => {
    errors.push(...ruleErrors(rule as RuleText, schema, `${path}.x-kubernetes-validations[${index}]`));
  });
  return errors;
}

function typeErrors({ type = '' }: JsonSchema, wanted: string, extension: string, path: string): FieldError[] {
  if (type === wanted) return [];
  const text = `must be ${wanted} if ${extension} is specified`;
  return [type === '' ? required(`${path}.type`, text) : invalid(`${path}.type`, type, text)];
}

function listTypeErrors(schema: JsonSchema, path: string): FieldError[] {
  const listType = schema['x-kubernetes-list-type'];
  const keys = schema['x-kubernetes-list-map-keys'] ?? [];
  const items = itemsOf(schema);
  const errors: FieldError[] = [];
  if (listType !== undefined) {
    const wrong = typeErrors(schema, 'array', 'x-kubernetes-list-type', path);
    errors.push(...wrong);
    if (wrong.length === 0 && listType === 'set' && items !== undefined) errors.push(...setErrors(items, path));
    if (!LIST_TYPES.includes(listType)) {
      errors.push(unsupportedValue(`${path}.x-kubernetes-list-type`, listType, LIST_TYPES));
    }
  }
  if (keys.length > 0 && listType !== 'map') {
    const text = 'must be map if x-kubernetes-list-map-keys is non-empty';
    const field = `${path}.x-kubernetes-list-type`;
    errors.push(listType === undefined ? required(field, text) : invalid(field, listType, text));
  }
  if (listType === 'map') errors.push(...mapListErrors(schema, items, keys, path));
  if (items !== undefined && (listType === 'set' || listType === 'map')) {
    errors.push(...itemErrors(items, listType === 'map' ? keys : [], listType, path));
  }
  return errors;
}

/** Validates the items of a set, which are compared as wholes. */
function setErrors(items: JsonSchema, path: string): FieldError[] {
  const text = 'must be atomic as item of a list with x-kubernetes-list-type=set';
  const inner = items['x-kubernetes-list-type'];
  if (items.type === 'array' && inner !== undefined && inner !== 'atomic') {
    return [invalid(`${path}.items.x-kubernetes-list-type`, inner, text)];
  }
  if (items.type === 'object' && items['x-kubernetes-map-type'] !== 'atomic') {
    // kube-apiserver reports the type of the list here.
    return [invalid(`${path}.items.x-kubernetes-map-type`, inner, text)];
  }
  return [];
}

function mapListErrors(
  schema: JsonSchema,
  items: JsonSchema | undefined,
  keys: readonly string[],
  path: string,
): FieldError[] {
  const errors: FieldError[] = [];
  const field = `${path}.x-kubernetes-list-map-keys`;
  if (keys.length === 0) errors.push(required(field, 'must not be empty if x-kubernetes-list-type is map'));
  if (schema.items === undefined) {
    errors.push(required(`${path}.items`, 'must have a schema if x-kubernetes-list-type is map'));
  } else if (items === undefined) {
    const text = 'must only have a single schema if x-kubernetes-list-type is map';
    errors.push(invalid(`${path}.items`, schema.items, text));
  }
  if (items === undefined) return errors;
  if (items.type !== 'object') {
    const text = "must be object if parent array's x-kubernetes-list-type is map";
    return [...errors, invalid(`${path}.items.type`, items.type ?? '', text)];
  }
  const seen = new Set<string>();
  for (const key of keys) {
    const inner = propertyOf(items, key);
    if (inner === undefined) errors.push(invalid(field, keys, 'entries must all be names of item properties'));
    else if (inner.type === 'array' || inner.type === 'object') {
      const text = "must be a scalar type if parent array's x-kubernetes-list-type is map";
      // kube-apiserver reports the type of the item here.
      errors.push(invalid(`${path}.items.properties[${key}].type`, items.type, text));
    }
    if (seen.has(key)) errors.push(invalid(field, keys, 'must not contain duplicate entries'));
    seen.add(key);
  }
  return errors;
}

const propertyOf = ({ properties }: JsonSchema, name: string): JsonSchema | undefined =>
  properties !== undefined && Object.hasOwn(properties, name) ? properties[name] : undefined;

/** Validates the items of a set or of a list map, whose keys must always have a value. A set has no `keys`. */
function itemErrors(items: JsonSchema, keys: readonly string[], listType: string, path: string): FieldError[] {
  const errors: FieldError[] = [];
  if (items.nullable === true) {
    errors.push(forbidden(`${path}.items.nullable`, `cannot be nullable when x-kubernetes-list-type is ${listType}`));
  }
  for (const key of keys) {
    const inner = propertyOf(items, key);
    if (inner === undefined) continue;
    const field = `${path}.items.properties[${key}]`;
    if (inner.default === undefined && items.required?.includes(key) !== true) {
      const text =
        'this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property';
      errors.push(required(`${field}.default`, text));
    }
    if (inner.nullable === true) {
      const text = 'this property is in x-kubernetes-list-map-keys, so it cannot be nullable';
      errors.push(forbidden(`${field}.nullable`, text));
    }
  }
  return errors;
}

const BREAK = /[\n\r]/;

function ruleErrors(text: RuleText, schema: JsonSchema, path: string): FieldError[] {
  const { rule = '', message = '', messageExpression = '', reason, fieldPath = '' } = text;
  const errors: FieldError[] = [];
  if (rule.trim() === '') errors.push(required(`${path}.rule`, 'rule is not specified'));
  else if (message !== '' && message.trim() === '') {
    errors.push(invalid(`${path}.message`, message, 'must be non-empty if specified'));
  } else if (BREAK.test(message.trim())) {
    errors.push(invalid(`${path}.message`, message, 'must not contain line breaks'));
  } else if (BREAK.test(rule.trim()) && message.trim() === '') {
    errors.push(required(`${path}.message`, 'message must be specified if rule contains line breaks'));
  }
  if (messageExpression !== '' && messageExpression.trim() === '') {
    errors.push(required(`${path}.messageExpression`, 'messageExpression must be non-empty if specified'));
  }
  if (reason !== undefined && !REASONS.includes(reason)) {
    errors.push(notSupported(`${path}.reason`, reason, REASONS));
  }
  if (fieldPath === '') return errors;
  const field = `${path}.fieldPath`;
  if (fieldPath.trim() === '') errors.push(invalid(field, fieldPath, 'must be non-empty if specified'));
  if (BREAK.test(fieldPath)) errors.push(invalid(field, fieldPath, 'must not contain line breaks'));
  if (fieldPathError(fieldPath, schema) !== undefined) {
    errors.push(invalid(field, fieldPath, 'must be a valid path'));
  }
  return errors;
}
