/**
 * Validates a custom resource by its schema, with the messages of the OpenAPI library that kube-apiserver uses.
 *
 * Rules in CEL are evaluated afterwards (`rule-validation.ts`).
 */
import type { RE2JS } from 're2js';
import {
  duplicate,
  invalid,
  quote,
  required,
  tooLong,
  tooMany,
  typeInvalid,
  unsupportedValue,
  FieldError,
  memberPath,
} from '../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import { compilePattern, PatternCache } from '../../../api/meta/pattern.ts';
import { canonicalJson } from '../../../api/codec/structured-merge/path-element.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import { fitsFormat, formatOf, isNumberFormat } from './formats.ts';
import { JunctionError } from './junction-error.ts';
import { isWhole, numberErrors } from './number-validation.ts';
import { itemsOf, type JsonSchema, memberSchema, OBJECT_MEMBERS } from './json-schema.ts';
import { spendSteps, withinBudget } from '../../../api/meta/validation-effort.ts';

/**
 * Returns the errors of a value. `path` is its path, or `''` for the root of an object. If the validation takes too long, its
 * only error says so.
 */
export function validateValue(value: JsonValue, schema: JsonSchema, path: string): FieldError[] {
  return withinBudget(() => errorsOf(value, schema, { path, isResource: false }));
}

/** Validates a whole object. `apiVersion`, `kind` and `metadata` are validated elsewhere. */
export function validateObject(object: JsonObject, schema: JsonSchema): FieldError[] {
  return withinBudget(() => errorsOf(object, schema, { path: '', isResource: true }));
}

/** Returns errors for duplicate items of sets and keyed lists. */
export function repeatedItems(object: JsonObject, schema: JsonSchema): FieldError[] {
  const errors: FieldError[] = [];
  checkLists(object, schema, '', errors);
  return errors;
}

function typeName(value: JsonValue): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'number' || typeof value === 'bigint') return isWhole(value) ? 'integer' : 'number';
  return typeof value;
}

/** The cost of validating one value by one schema. Each alternative of `anyOf` and similar keywords counts as a schema. */
const STEPS_PER_VALUE = 20;

/** Where a value stands. The schema of a resource does not describe its `apiVersion`, `kind` and `metadata`. */
interface Place {
  readonly path: string;
  readonly isResource: boolean;
}

/** Returns the place of a value whose schema says whether it is an embedded resource. */
const placeOf = (path: string, schema: JsonSchema): Place => ({
  path,
  isResource: schema['x-kubernetes-embedded-resource'] === true,
});

/** Adds the errors of a value and returns how many checks matched, which selects the alternative whose errors are reported. */
function check(value: JsonValue, schema: JsonSchema, at: Place, errors: FieldError[]): number {
  const { path } = at;
  spendSteps(STEPS_PER_VALUE);
  const fault = typeFault(value, schema);
  if (fault !== undefined)
    addError(
      errors,
      typeInvalid(path, fault.found, `${path} in body must be of type ${fault.wanted}: "${fault.found}"`),
    );
  if (value === null) {
    checkEnum(value, schema, path, errors);
    return 0;
  }
  let matches = APPLYING_CHECKS;
  if (schema.type || schema.format) matches += fault === undefined ? 2 : 1;
  matches += checkCombinations(value, schema, at, errors);
  if (typeof value === 'string') matches += checkText(value, schema, path, errors);
  else if (typeof value === 'number' || typeof value === 'bigint') {
    matches += 1;
    for (const error of numberErrors(value, schema, path)) addError(errors, error);
  } else if (Array.isArray(value)) matches += checkList(value, schema, path, errors);
  checkEnum(value, schema, path, errors);
  if (isJsonObject(value)) matches += checkObject(value, schema, at, errors);
  return matches;
}

/** The checks of combinations and of `enum` apply to every value, and the schema counts as a match of its own. */
const APPLYING_CHECKS = 3;

/** Adds an error, except one that was added before, for example by another alternative of `anyOf`, up to `MANY_ERRORS`. */
function addError(errors: FieldError[], error: FieldError): void {
  if (errors.length > MANY_ERRORS || !errors.some((one) => isSame(one, error))) errors.push(error);
}

/** Beyond this number, errors are no longer compared with each other to leave out equal ones. */
const MANY_ERRORS = 100;
const isSame = (a: FieldError, b: FieldError): boolean =>
  a.type === b.type && a.field === b.field && a.detail === b.detail;

function checkEnum(value: JsonValue, schema: JsonSchema, path: string, errors: FieldError[]): void {
  if (schema.enum === undefined || schema.enum.length === 0 || (value !== null && isAmong(value, schema.enum))) return;
  const { type, detail } = unsupportedBy(schema.enum);
  addError(errors, new FieldError(type, path, value, detail));
}

/** The number of values from which on a set is used for look-ups instead of comparisons one by one. */
const MANY_VALUES = 16;
const lookups = new WeakMap<readonly JsonValue[], ReadonlySet<string>>();

function isAmong(value: JsonValue, values: readonly JsonValue[]): boolean {
  if (values.length < MANY_VALUES) return values.some((one) => jsonEqual(one, value));
  let lookup = lookups.get(values);
  if (lookup === undefined) {
    lookup = new Set(values.map(canonicalJson));
    lookups.set(values, lookup);
  }
  return lookup.has(canonicalJson(value));
}

const refusals = new WeakMap<readonly JsonValue[], FieldError>();

/** Returns the error for a value that is not in the list. Its detail contains the whole list, so it is created once. */
function unsupportedBy(values: readonly JsonValue[]): FieldError {
  let refusal = refusals.get(values);
  if (refusal === undefined) {
    const texts = values.map((one) => (typeof one === 'string' ? one : canonicalJson(one)));
    refusal = unsupportedValue('', null, texts);
    refusals.set(values, refusal);
  }
  return refusal;
}

/** The format of a number in Go, which errors show for a value whose schema has a format. */
const NUMBER_FORMATS: ReadonlyMap<string, string> = new Map([
  ['integer', 'int64'],
  ['number', 'float64'],
]);

interface TypeFault {
  readonly wanted: string;
  readonly found: string;
}

/** Returns how a value differs from the type that its schema requires, or `undefined`. */
function typeFault(value: JsonValue, schema: JsonSchema): TypeFault | undefined {
  const types =
    schema['x-kubernetes-int-or-string'] === true ? ['integer', 'string'] : schema.type ? [schema.type] : [];
  const actual = typeName(value);
  if (value === null) {
    return types.length === 0 || schema.nullable === true ? undefined : { wanted: types.join(','), found: actual };
  }
  if (types.includes(actual) || (actual === 'integer' && types.includes('number'))) return undefined;
  const format = formatOf(types.length === 1 ? types[0] : '', schema.format);
  if (format === '') return types.length === 0 ? undefined : { wanted: types.join(','), found: actual };
  if (actual !== 'string' && actual !== 'array') return { wanted: format, found: NUMBER_FORMATS.get(actual) ?? '' };
  const isNumeric = types.includes('integer') || types.includes('number');
  return isNumeric ? { wanted: types.join(','), found: actual } : undefined;
}

const errorsOf = (value: JsonValue, schema: JsonSchema, at: Place): FieldError[] => resultOf(value, schema, at).errors;

interface Result {
  readonly errors: FieldError[];
  readonly matches: number;
}

function resultOf(value: JsonValue, schema: JsonSchema, at: Place): Result {
  const errors: FieldError[] = [];
  const matches = check(value, schema, at, errors);
  return { errors, matches };
}

/** Returns the error of a junction (`allOf`, `anyOf`, `oneOf`, `not`), which names no field. */
const junctionError = (at: string, text: string): JunctionError =>
  new JunctionError(invalid('<nil>', '', `"${at}" must ${text}`), at);

interface Alternatives {
  readonly schemas: readonly JsonSchema[] | undefined;
  /** What the value must do instead if this number of schemas is valid; `undefined` if the number is right. */
  readonly refusal: (validSchemas: number) => string | undefined;
}

/**
 * Validates a value by `anyOf` or `oneOf`, and returns the matches of the alternative that counts. If none is valid, the errors
 * of the first one with the most matches are reported.
 */
function checkAlternatives(
  value: JsonValue,
  { schemas = [], refusal }: Alternatives,
  at: Place,
  errors: FieldError[],
): number {
  if (schemas.length === 0) return 0;
  const { path } = at;
  const results = schemas.map((one) => resultOf(value, one, at));
  const valid = results.filter((result) => result.errors.length === 0);
  const text = refusal(valid.length);
  if (text !== undefined) addError(errors, junctionError(path, text));
  const [first] = valid;
  if (first !== undefined) return text === undefined ? first.matches : 0;
  const best = results.reduce((most, result) => (result.matches > most.matches ? result : most));
  for (const error of best.errors) addError(errors, new JunctionError(error, path));
  return best.matches;
}

const ANY_OF = (valid: number): string | undefined =>
  valid === 0 ? 'validate at least one schema (anyOf)' : undefined;

const ONE_OF = (valid: number): string | undefined => {
  if (valid === 1) return undefined;
  const found = valid === 0 ? 'Found none valid' : `Found ${valid} valid alternatives`;
  return `validate one and only one schema (oneOf). ${found}`;
};

function checkCombinations(value: JsonValue, schema: JsonSchema, at: Place, errors: FieldError[]): number {
  const { path } = at;
  const refuse = (text: string): void => addError(errors, junctionError(path, text));
  const { anyOf, oneOf, allOf = [], not } = schema;
  let matches = 1;
  matches += checkAlternatives(value, { schemas: anyOf, refusal: ANY_OF }, at, errors);
  matches += checkAlternatives(value, { schemas: oneOf, refusal: ONE_OF }, at, errors);
  const results = allOf.map((one) => resultOf(value, one, at));
  for (const result of results) {
    matches += result.matches;
    for (const error of result.errors) addError(errors, new JunctionError(error, path));
  }
  const fitting = results.filter((result) => result.errors.length === 0).length;
  if (fitting < allOf.length) refuse(`validate all the schemas (allOf)${fitting === 0 ? '. None validated' : ''}`);
  if (not !== undefined && errorsOf(value, not, at).length === 0) refuse('not validate the schema (not)');
  return matches;
}

/** The compiled patterns that are kept, measured in instructions of all of them together. */
const MAX_KEPT_INSTRUCTIONS = 200_000;
const patterns = new PatternCache<RE2JS>(MAX_KEPT_INSTRUCTIONS);

/** Compiles a pattern of a schema. Throws a `RE2JSException` for a malformed pattern. */
export function patternOf(source: string): RE2JS {
  let pattern = patterns.get(source);
  if (pattern === undefined) {
    pattern = compilePattern(source);
    patterns.add(source, pattern, pattern.programSize());
  }
  return pattern;
}

function isMatch(value: string, source: string): boolean {
  const pattern = patternOf(source);
  spendSteps(value.length * pattern.programSize());
  return pattern.matcher(value).find();
}

function checkText(value: string, schema: JsonSchema, path: string, errors: FieldError[]): number {
  const { maxLength, minLength, pattern } = schema;
  const format = formatOf(schema.type, schema.format);
  const length = [...value].length;
  // Only the first of these errors is reported.
  if (maxLength !== undefined && length > maxLength) addError(errors, tooLong(path, maxLength));
  else if (minLength !== undefined && length < minLength) {
    addError(errors, invalid(path, value, `${path} in body should be at least ${minLength} chars long`));
  } else if (pattern && !isMatch(value, pattern)) {
    addError(errors, invalid(path, value, `${path} in body should match '${pattern}'`));
  }
  if (format !== '' && !fitsFormat(format, value)) {
    addError(errors, typeInvalid(path, value, `${path} in body must be of type ${format}: ${quote(value)}`));
  }
  return format === '' || isNumberFormat(format) ? 1 : 2;
}

function checkList(list: readonly JsonValue[], schema: JsonSchema, path: string, errors: FieldError[]): number {
  let matches = 1;
  const items = itemsOf(schema);
  if (items !== undefined) {
    list.forEach((item, index) => {
      matches += check(item, items, placeOf(`${path}[${index}]`, items), errors);
    });
  }
  const { minItems, maxItems, uniqueItems } = schema;
  if (minItems !== undefined && list.length < minItems) {
    errors.push(invalid(path, list.length, `${path} in body should have at least ${minItems} items`));
  }
  if (maxItems !== undefined && list.length > maxItems) errors.push(tooMany(path, list.length, maxItems));
  if (uniqueItems === true && new Set(list.map(canonicalJson)).size < list.length) {
    errors.push(invalid(path, '', `${path} in body shouldn't contain duplicates`));
  }
  return matches;
}

function checkObject(object: JsonObject, schema: JsonSchema, at: Place, errors: FieldError[]): number {
  const { path, isResource } = at;
  let matches = 0;
  const names = Object.keys(object).sort();
  const { maxProperties, minProperties, properties = {} } = schema;
  if (minProperties !== undefined && names.length < minProperties) {
    errors.push(invalid(path, names.length, `${path} in body should have at least ${minProperties} properties`));
  }
  if (maxProperties !== undefined && names.length > maxProperties)
    errors.push(tooMany(path, names.length, maxProperties));
  const checkMembers = (isSelected: (name: string) => boolean): void => {
    for (const name of names) {
      if ((isResource && OBJECT_MEMBERS.has(name)) || !isSelected(name)) continue;
      const inner = memberSchema(schema, name);
      const value = object[name];
      if (inner === undefined || value === undefined) continue;
      matches += check(value, inner, placeOf(memberPath(path, name), inner), errors);
    }
  };
  const isProperty = (name: string): boolean => Object.hasOwn(properties, name);
  checkMembers((name) => !isProperty(name));
  checkMembers(isProperty);
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(object, name)) addError(errors, required(memberPath(path, name)));
  }
  return matches;
}

/** Checks that the items of sets and keyed lists are unique. */
function checkLists(value: JsonValue, schema: JsonSchema, path: string, errors: FieldError[]): void {
  if (Array.isArray(value)) {
    const type = schema['x-kubernetes-list-type'];
    if (type === 'set') checkRepeated(value, path, errors);
    else if (type === 'map') checkKeys(value, schema['x-kubernetes-list-map-keys'] ?? [], path, errors);
    const items = itemsOf(schema);
    if (items !== undefined) value.forEach((item, index) => checkLists(item, items, `${path}[${index}]`, errors));
  } else if (isJsonObject(value)) {
    for (const [name, member] of Object.entries(value)) {
      const inner = memberSchema(schema, name);
      if (inner === undefined || member === undefined) continue;
      const isProperty = schema.properties !== undefined && Object.hasOwn(schema.properties, name);
      checkLists(member, inner, isProperty ? memberPath(path, name) : `${path}[${name}]`, errors);
    }
  }
}

/** Validates that no two items of a list map have the same keys. Null items and items without any key count as the same. */
function checkKeys(list: readonly JsonValue[], keys: readonly string[], path: string, errors: FieldError[]): void {
  const wrong = list.findIndex((item) => item !== null && !isJsonObject(item));
  if (wrong >= 0) {
    const text = 'must be an object for an array of list-type map';
    errors.push(invalid(`${path}[${wrong}]`, list[wrong], text));
    return;
  }
  checkRepeated(
    list.map((item) => (isJsonObject(item) ? keysOf(item, keys) : {})),
    path,
    errors,
  );
}

/** Reports the first repetition of each item. */
function checkRepeated(list: readonly JsonValue[], path: string, errors: FieldError[]): void {
  const times = new Map<string, number>();
  list.forEach((item, index) => {
    const text = canonicalJson(item);
    const before = times.get(text) ?? 0;
    if (before === 1) errors.push(duplicate(`${path}[${index}]`, item));
    times.set(text, before + 1);
  });
}

/** Returns the keys of an item, in the order in which Go writes a map. */
function keysOf(item: JsonObject, keys: readonly string[]): JsonObject {
  return Object.fromEntries(
    keys
      .toSorted()
      .filter((key) => item[key] !== undefined)
      .map((key) => [key, item[key]]),
  );
}
