/**
 * Checks whether a schema is structural. In a structural schema, each value has one type, which is specified outside of `allOf`
 * and similar keywords. Errors are sorted by their text.
 */
import { RE2JSException } from 're2js';
import { type FieldError, forbidden, invalid, required } from '../../../api/meta/field-error.ts';
import { innerSchemas, itemsOf, type JsonSchema } from './json-schema.ts';
import { patternOf } from './value-validation.ts';

/** Keywords that are forbidden anywhere. If a schema contains one, its structure and its defaults are not validated. */
const UNREADABLE = ['id', '$schema', '$ref', 'patternProperties', 'dependencies', 'additionalItems', 'definitions'];

/** Whether the schema and its parts have no keyword that a structural schema cannot contain. */
export function isReadable(schema: JsonSchema): boolean {
  if (Array.isArray(schema.items) || schema['x-kubernetes-preserve-unknown-fields'] === false) return false;
  if (UNREADABLE.some((name) => isSet((schema as Readonly<Record<string, unknown>>)[name]))) return false;
  return [...innerSchemas(schema)].every(isReadable);
}

function isSet(value: unknown): boolean {
  if (value === undefined || value === null || value === '') return false;
  return typeof value !== 'object' || Object.keys(value).length > 0;
}

/** Returns the errors of a schema. `path` is its path, such as `spec.versions[0].schema.openAPIV3Schema`. */
export function structuralErrors(schema: JsonSchema, path: string): FieldError[] {
  const errors: FieldError[] = [];
  validateNode(schema, 'root', path, errors);
  completeJunctions({ schema, path }, { schema, path }, errors);
  const shown = errors.map((error) => ({ error, text: String(error) }));
  return shown.sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : 0)).map(({ error }) => error);
}

type Level = 'root' | 'item' | 'field';

const UNTYPED: Readonly<Record<Level, string>> = {
  root: 'must not be empty at the root',
  item: 'must not be empty for specified array items',
  field: 'must not be empty for specified object fields',
};

function validateNode(schema: JsonSchema, level: Level, path: string, errors: FieldError[]): void {
  const { type = '', additionalProperties } = schema;
  const items = itemsOf(schema);
  if (type === 'array' && items === undefined) errors.push(required(`${path}.items`, 'must be specified'));
  if (items !== undefined) validateNode(items, 'item', `${path}.items`, errors);
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    validateNode(inner, 'field', `${path}.properties[${name}]`, errors);
  }
  if (additionalProperties !== undefined && level === 'root') {
    errors.push(forbidden(`${path}.additionalProperties`, 'must not be used at the root'));
  }
  if (typeof additionalProperties === 'object') {
    validateNode(additionalProperties, 'field', `${path}.additionalProperties`, errors);
  }
  validateExtensions(schema, level, path, errors);
  validateJunctions(schema, path, errors, {
    anyOf: intOrString(schema.anyOf),
    anyOfInFirst: intOrString(schema.allOf?.[0]?.anyOf),
  });
  validateObjectMembers(schema, level, path, errors);
  if (level === 'root' && type !== '' && type !== 'object') {
    errors.push(invalid(`${path}.type`, type, 'must be object at the root'));
  }
}

function validateExtensions(schema: JsonSchema, level: Level, path: string, errors: FieldError[]): void {
  const isIntOrString = schema['x-kubernetes-int-or-string'] === true;
  const isOpen = schema['x-kubernetes-preserve-unknown-fields'] === true;
  const isEmbedded = schema['x-kubernetes-embedded-resource'] === true;
  const refuse = (name: string): unknown =>
    errors.push(invalid(`${path}.${name}`, true, 'must be false if x-kubernetes-int-or-string is true'));
  if (isIntOrString && isOpen) refuse('x-kubernetes-preserve-unknown-fields');
  if (isIntOrString && isEmbedded) refuse('x-kubernetes-embedded-resource');
  const { type = '' } = schema;
  if (isEmbedded && type !== 'object') {
    const why = 'must be object if x-kubernetes-embedded-resource is true';
    errors.push(type === '' ? required(`${path}.type`, why) : invalid(`${path}.type`, type, why));
  } else if (type === '' && !isIntOrString && !isOpen) errors.push(required(`${path}.type`, UNTYPED[level]));
  if (isEmbedded && schema.additionalProperties !== undefined) {
    const why = 'must not be used if x-kubernetes-embedded-resource is set';
    errors.push(forbidden(`${path}.additionalProperties`, why));
  }
  if (isEmbedded && !isOpen && Object.keys(schema.properties ?? {}).length === 0) {
    const why =
      'must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields';
    errors.push(required(`${path}.properties`, why));
  }
}

/**
 * Validates what a schema declares about `kind`, `apiVersion` and `metadata`. At the root, it may restrict only the names in
 * metadata, because the rest of it is the same for all objects.
 */
function validateObjectMembers(schema: JsonSchema, level: Level, path: string, errors: FieldError[]): void {
  const isObject = level === 'root' || schema['x-kubernetes-embedded-resource'] === true;
  const { properties = {} } = schema;
  const member = (name: string): JsonSchema | undefined =>
    Object.hasOwn(properties, name) ? properties[name] : undefined;
  for (const [name, type] of [
    ['kind', 'string'],
    ['apiVersion', 'string'],
    ['metadata', 'object'],
  ] as const) {
    const inner = member(name);
    if (isObject && inner !== undefined && inner.type !== type) {
      errors.push(invalid(`${path}.properties[${name}].type`, inner.type ?? '', `must be ${type}`));
    }
  }
  const metadata = member('metadata');
  if (level !== 'root' || metadata === undefined || restrictsNamesOnly(metadata)) return;
  const text = 'must not specify anything other than name and generateName, but metadata is implicitly specified';
  errors.push(forbidden(`${path}.properties[metadata]`, text));
}

const OF_METADATA: ReadonlySet<string> = new Set(['type', 'default', 'properties']);

function restrictsNamesOnly(metadata: JsonSchema): boolean {
  const names = Object.keys(metadata.properties ?? {});
  const others = Object.entries(metadata).some(
    ([name, value]) => !OF_METADATA.has(name) && value !== undefined && value !== '' && value !== false,
  );
  return !others && names.every((name) => name === 'name' || name === 'generateName');
}

/** Whether `anyOf` is the form that other tools expect beside `x-kubernetes-int-or-string`. */
function intOrString(anyOf: readonly JsonSchema[] | undefined): boolean {
  if (anyOf?.length !== 2) return false;
  return anyOf.every((one, index) => one.type === ['integer', 'string'][index] && Object.keys(one).length === 1);
}

/** Which alternatives are not validated, because they have the form that other tools expect (`intOrString`). */
interface Skipped {
  /** Whether the alternatives in `anyOf` are skipped. */
  readonly anyOf: boolean;
  /** Whether the alternatives in `anyOf` of the first schema of `allOf` are skipped. */
  readonly anyOfInFirst: boolean;
}

const NOTHING_SKIPPED: Skipped = { anyOf: false, anyOfInFirst: false };

function validateJunctions(schema: JsonSchema, path: string, errors: FieldError[], skipped: Skipped): void {
  const { anyOf = [], allOf = [], oneOf = [], not, pattern } = schema;
  if (!skipped.anyOf) anyOf.forEach((one, index) => validateNested(one, `${path}.anyOf[${index}]`, errors));
  allOf.forEach((one, index) => {
    const inside = { anyOf: skipped.anyOfInFirst && index === 0, anyOfInFirst: false };
    validateNested(one, `${path}.allOf[${index}]`, errors, inside);
  });
  oneOf.forEach((one, index) => validateNested(one, `${path}.oneOf[${index}]`, errors));
  if (not !== undefined) validateNested(not, `${path}.not`, errors);
  if (pattern) validatePattern(pattern, path, errors);
}

function validatePattern(pattern: string, path: string, errors: FieldError[]): void {
  try {
    patternOf(pattern);
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error;
    const shown = error.message.endsWith('trailing backslash at end of expression') ? ': ``' : '';
    const text = `must be a valid regular expression, but isn't: ${error.message}${shown}`;
    errors.push(invalid(`${path}.pattern`, pattern, text));
  }
}

/** Keywords that are only allowed outside of `allOf` and similar keywords, and the value that they must have inside. */
const OUTSIDE_ONLY: Readonly<Record<string, string>> = {
  type: 'empty',
  additionalProperties: 'undefined',
  default: 'undefined',
  title: 'empty',
  description: 'empty',
  nullable: 'false',
  'x-kubernetes-preserve-unknown-fields': 'false',
  'x-kubernetes-embedded-resource': 'false',
  'x-kubernetes-int-or-string': 'false',
  'x-kubernetes-list-map-keys': 'empty',
  'x-kubernetes-list-type': 'undefined',
  'x-kubernetes-map-type': 'undefined',
  'x-kubernetes-validations': 'empty',
};

/** Whether a keyword inside of `allOf` and similar keywords has another value than the one that it must have there. */
function isMisplaced(value: unknown, wanted: string): boolean {
  if (value === undefined || value === null) return false;
  if (wanted === 'undefined') return true;
  return value !== '' && value !== false && !(Array.isArray(value) && value.length === 0);
}

function validateNested(schema: JsonSchema, path: string, errors: FieldError[], skipped = NOTHING_SKIPPED): void {
  validateJunctions(schema, path, errors, skipped);
  const items = itemsOf(schema);
  if (items !== undefined) validateNested(items, `${path}.items`, errors);
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    validateNested(inner, `${path}.properties[${name}]`, errors);
  }
  for (const [name, wanted] of Object.entries(OUTSIDE_ONLY)) {
    if (isMisplaced((schema as Readonly<Record<string, unknown>>)[name], wanted)) {
      errors.push(forbidden(`${path}.${name}`, `must be ${wanted} to be structural`));
    }
  }
  if (schema.properties !== undefined && Object.hasOwn(schema.properties, 'metadata')) {
    errors.push(forbidden(`${path}.properties[metadata]`, 'must not be specified in a nested context'));
  }
}

interface SchemaAt<Schema = JsonSchema> {
  readonly schema: Schema;
  readonly path: string;
}

/**
 * Checks that members that `allOf` and similar keywords name are also specified outside of them, in `outer`. This is only
 * checked for keywords at the root.
 */
function completeJunctions({ schema, path }: SchemaAt, outer: SchemaAt, errors: FieldError[]): void {
  const enter = (inner: JsonSchema, at: string): void => completeNested({ schema: inner, path: at }, outer, errors);
  if (schema.not !== undefined) enter(schema.not, `${path}.not`);
  for (const junction of ['allOf', 'anyOf', 'oneOf'] as const) {
    schema[junction]?.forEach((one, index) => enter(one, `${path}.${junction}[${index}]`));
  }
}

function completeNested(inner: SchemaAt, outer: SchemaAt<JsonSchema | undefined>, errors: FieldError[]): void {
  const { schema } = outer;
  if (schema === undefined) {
    errors.push(required(outer.path, `because it is defined in ${inner.path}`));
    return;
  }
  completeJunctions(inner, { schema, path: outer.path }, errors);
  const enter = (step: string, member: JsonSchema, described: JsonSchema | undefined): void =>
    completeNested(
      { schema: member, path: `${inner.path}${step}` },
      { schema: described, path: `${outer.path}${step}` },
      errors,
    );
  const items = itemsOf(inner.schema);
  if (items !== undefined) enter('.items', items, itemsOf(schema));
  for (const [name, member] of Object.entries(inner.schema.properties ?? {})) {
    const described = Object.hasOwn(schema.properties ?? {}, name) ? schema.properties?.[name] : undefined;
    enter(`.properties[${name}]`, member, described);
  }
}
