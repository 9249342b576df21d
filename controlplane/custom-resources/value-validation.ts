/**
 * Validates a custom resource by its schema, with the messages of the OpenAPI library that kube-apiserver uses.
 *
 * Rules in CEL are evaluated afterwards (`rule-validation.ts`). Patterns are matched in linear time.
 */
import type { RE2JS } from 're2js';
import {
  duplicate,
  invalid,
  required,
  tooLong,
  tooMany,
  typeInvalid,
  unsupportedValue,
  FieldError,
} from '../../api/meta/field-error.ts';
import { jsonEqual } from '../../api/meta/json-equality.ts';
import { compilePattern, PatternCache } from '../../api/meta/pattern.ts';
import { canonicalJson } from '../../api/codec/structured-merge/path-element.ts';
import type { JsonObject, JsonValue } from '../../api/meta/object.ts';
import { fitsFormat, fitsIntegerFormat } from './formats.ts';
import { isObject, itemsOf, type JsonSchema, memberSchema, OBJECT_MEMBERS } from './json-schema.ts';
import { spendSteps, withinBudget } from '../../api/meta/validation-effort.ts';

/** `path` is the path of the value, or `''` for the root of an object. */
export function validateValue(value: JsonValue, schema: JsonSchema, path: string): FieldError[] {
  return withinBudget(() => errorsOf(value, schema, path, false));
}

/** Validates a whole object. `apiVersion`, `kind` and `metadata` are validated elsewhere. */
export function validateObject(object: JsonObject, schema: JsonSchema): FieldError[] {
  return withinBudget(() => errorsOf(object, schema, '', true));
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
  if (typeof value === 'number') return Number.isSafeInteger(value) ? 'integer' : 'number';
  return typeof value === 'bigint' ? 'integer' : typeof value;
}

/** The cost of validating one value by one schema. Each alternative of `anyOf` and similar keywords counts as a schema. */
const STEPS_OF_A_VALUE = 20;

const child = (path: string, name: string): string => (path === '' ? name : `${path}.${name}`);

function check(value: JsonValue, schema: JsonSchema, path: string, errors: FieldError[], isResource: boolean): void {
  spendSteps(STEPS_OF_A_VALUE);
  if (value === null && schema.nullable === true) return;
  if (!checkType(value, schema, path, errors)) return;
  checkCombinations(value, schema, path, errors, isResource);
  if (typeof value === 'string') checkText(value, schema, path, errors);
  else if (typeof value === 'number' || typeof value === 'bigint') checkNumber(value, schema, path, errors);
  else if (Array.isArray(value)) checkList(value, schema, path, errors);
  if (schema.enum !== undefined && !isAmong(value, schema.enum)) {
    const { type, detail } = unsupportedBy(schema.enum);
    errors.push(new FieldError(type, path, value, detail));
  }
  if (isObject(value)) checkObject(value, schema, path, errors, isResource);
}

/** With at least this number of values, a set is used for look-ups instead of comparisons one by one. */
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

function checkType(value: JsonValue, schema: JsonSchema, path: string, errors: FieldError[]): boolean {
  const wanted =
    schema['x-kubernetes-int-or-string'] === true ? ['integer', 'string'] : schema.type ? [schema.type] : [];
  const actual = typeName(value);
  if (wanted.length === 0 || wanted.includes(actual) || (wanted.includes('number') && actual === 'integer'))
    return true;
  const text = `${path} in body must be of type ${wanted.join(',')}: "${actual}"`;
  errors.push(typeInvalid(path, actual, text));
  return false;
}

const errorsOf = (value: JsonValue, schema: JsonSchema, path: string, isResource: boolean): FieldError[] => {
  const errors: FieldError[] = [];
  check(value, schema, path, errors, isResource);
  return errors;
};

/** Returns how many parts of the value match a schema. If all alternatives fail, the error of the best match is reported. */
function reach(value: JsonValue, schema: JsonSchema): number {
  let count = schema.type || schema.format ? 1 : 0;
  if (isObject(value)) {
    for (const [name, inner] of Object.entries(schema.properties ?? {})) {
      const member = Object.hasOwn(value, name) ? value[name] : undefined;
      if (member !== undefined) count += 1 + reach(member, inner);
    }
  }
  const items = itemsOf(schema);
  if (Array.isArray(value) && items !== undefined) for (const item of value) count += 1 + reach(item, items);
  return count;
}

/** An error about the value at `at` as a whole, which names no field or another field. */
export class JunctionError extends FieldError {
  readonly at: string;

  constructor({ type, field, value, detail }: FieldError, at: string) {
    super(type, field, value, detail);
    this.at = at;
  }
}

/** The error of a junction itself names no field. */
const junctionError = (at: string, text: string): JunctionError =>
  new JunctionError(invalid('<nil>', '', `"${at}" must ${text}`), at);

/** Validates `anyOf`, `oneOf` and similar keywords: a certain number of alternatives must match. */
function checkAlternatives(
  value: JsonValue,
  all: readonly JsonSchema[] | undefined,
  path: string,
  isResource: boolean,
  errors: FieldError[],
  refusal: (count: number) => string | undefined,
): void {
  if (all === undefined || all.length === 0) return;
  const results = all.map((one) => ({ one, found: errorsOf(value, one, path, isResource) }));
  const count = results.filter(({ found }) => found.length === 0).length;
  const text = refusal(count);
  if (text === undefined) return;
  errors.push(junctionError(path, text));
  if (count > 0) return;
  const [best] = results.toSorted((a, b) => reach(value, b.one) - reach(value, a.one));
  errors.push(...(best?.found ?? []).map((error) => new JunctionError(error, path)));
}

function checkCombinations(
  value: JsonValue,
  schema: JsonSchema,
  path: string,
  errors: FieldError[],
  isResource: boolean,
): void {
  const refuse = (text: string): unknown => errors.push(junctionError(path, text));
  const { anyOf, oneOf, allOf = [], not } = schema;
  checkAlternatives(value, anyOf, path, isResource, errors, (count) =>
    count === 0 ? 'validate at least one schema (anyOf)' : undefined,
  );
  checkAlternatives(value, oneOf, path, isResource, errors, (count) => {
    if (count === 1) return undefined;
    const found = count === 0 ? 'none valid' : `${count} valid alternatives`;
    return `validate one and only one schema (oneOf). Found ${found}`;
  });
  const found = allOf.map((one) => errorsOf(value, one, path, isResource));
  errors.push(...found.flat().map((error) => new JunctionError(error, path)));
  const fitting = found.filter((one) => one.length === 0).length;
  if (fitting < allOf.length) refuse(`validate all the schemas (allOf)${fitting === 0 ? '. None validated' : ''}`);
  if (not !== undefined && errorsOf(value, not, path, isResource).length === 0) refuse('not validate the schema (not)');
}

const MAX_KEPT_INSTRUCTIONS = 200_000;
const patterns = new PatternCache<RE2JS>(MAX_KEPT_INSTRUCTIONS);

/** Throws a `RE2JSException` for a malformed pattern. */
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

function checkText(value: string, schema: JsonSchema, path: string, errors: FieldError[]): void {
  const { maxLength, minLength, pattern, format } = schema;
  const length = [...value].length;
  // Only the first of these errors is reported.
  if (maxLength !== undefined && length > maxLength) errors.push(tooLong(path, maxLength));
  else if (minLength !== undefined && length < minLength) {
    errors.push(invalid(path, value, `${path} in body should be at least ${minLength} chars long`));
  } else if (pattern && !isMatch(value, pattern)) {
    errors.push(invalid(path, value, `${path} in body should match '${pattern}'`));
  }
  if (format && !fitsFormat(format, value)) {
    errors.push(typeInvalid(path, value, `${path} in body must be of type ${format}: "${value}"`));
  }
}

function checkNumber(value: number | bigint, schema: JsonSchema, path: string, errors: FieldError[]): void {
  const { multipleOf, maximum, minimum, exclusiveMaximum, exclusiveMinimum } = schema;
  const refuse = (text: string): unknown => errors.push(invalid(path, value, `${path} in body should be ${text}`));
  if (schema.type === 'integer' && !fitsIntegerFormat(schema.format ?? '', value)) {
    const text = `Checked value must be of type integer with format ${schema.format ?? ''} in ${path}`;
    errors.push(new JunctionError(invalid('<nil>', '', text), path));
  }
  if (multipleOf !== undefined && !Number.isInteger(Number(value) / multipleOf)) refuse(`a multiple of ${multipleOf}`);
  if (maximum !== undefined && (exclusiveMaximum === true ? value >= maximum : value > maximum)) {
    refuse(`less than ${exclusiveMaximum === true ? '' : 'or equal to '}${maximum}`);
  }
  if (minimum !== undefined && (exclusiveMinimum === true ? value <= minimum : value < minimum)) {
    refuse(`greater than ${exclusiveMinimum === true ? '' : 'or equal to '}${minimum}`);
  }
}

function checkList(list: readonly JsonValue[], schema: JsonSchema, path: string, errors: FieldError[]): void {
  const items = itemsOf(schema);
  if (items !== undefined) {
    const isResource = items['x-kubernetes-embedded-resource'] === true;
    list.forEach((item, index) => check(item, items, `${path}[${index}]`, errors, isResource));
  }
  const { minItems, maxItems, uniqueItems } = schema;
  if (minItems !== undefined && list.length < minItems) {
    errors.push(invalid(path, list.length, `${path} in body should have at least ${minItems} items`));
  }
  if (maxItems !== undefined && list.length > maxItems) errors.push(manyItems(path, list.length, maxItems));
  if (uniqueItems === true && new Set(list.map(canonicalJson)).size < list.length) {
    errors.push(invalid(path, '', `${path} in body shouldn't contain duplicates`));
  }
}

/** Creates errors such as `Too many: 3: must have at most 2 items`. */
const manyItems = tooMany;

function checkObject(
  object: JsonObject,
  schema: JsonSchema,
  path: string,
  errors: FieldError[],
  isResource: boolean,
): void {
  const names = Object.keys(object);
  const { maxProperties, minProperties } = schema;
  if (maxProperties !== undefined && names.length > maxProperties)
    errors.push(tooMany(path, names.length, maxProperties));
  if (minProperties !== undefined && names.length < minProperties) {
    errors.push(invalid(path, names.length, `${path} in body should have at least ${minProperties} properties`));
  }
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(object, name)) errors.push(required(child(path, name)));
  }
  if (isResource && path !== '') checkEmbedded(object, path, errors);
  for (const name of names.sort()) {
    if (isResource && OBJECT_MEMBERS.has(name)) continue;
    const inner = memberSchema(schema, name);
    const value = object[name];
    if (inner === undefined || value === undefined) continue;
    check(value, inner, child(path, name), errors, inner['x-kubernetes-embedded-resource'] === true);
  }
}

function checkEmbedded(object: JsonObject, path: string, errors: FieldError[]): void {
  for (const name of ['apiVersion', 'kind']) {
    if (object[name] === undefined || object[name] === '') errors.push(required(`${path}.${name}`));
  }
}

/** Checks that the items of sets and keyed lists are unique. */
function checkLists(value: JsonValue, schema: JsonSchema, path: string, errors: FieldError[]): void {
  if (Array.isArray(value)) {
    const type = schema['x-kubernetes-list-type'];
    if (type === 'set' || type === 'map') {
      const keys = type === 'map' ? (schema['x-kubernetes-list-map-keys'] ?? []) : undefined;
      checkRepeated(value, keys, path, errors);
    }
    const items = itemsOf(schema);
    if (items !== undefined) value.forEach((item, index) => checkLists(item, items, `${path}[${index}]`, errors));
  } else if (isObject(value)) {
    for (const [name, member] of Object.entries(value)) {
      const inner = memberSchema(schema, name);
      if (inner !== undefined && member !== undefined) checkLists(member, inner, child(path, name), errors);
    }
  }
}

function checkRepeated(
  list: readonly JsonValue[],
  keys: readonly string[] | undefined,
  path: string,
  errors: FieldError[],
): void {
  const seen = new Set<string>();
  list.forEach((item, index) => {
    const shown = keys === undefined || !isObject(item) ? item : keysOf(item, keys);
    const text = canonicalJson(shown);
    if (seen.has(text)) errors.push(duplicate(`${path}[${index}]`, shown));
    seen.add(text);
  });
}

function keysOf(item: JsonObject, keys: readonly string[]): JsonObject {
  return Object.fromEntries(keys.filter((key) => item[key] !== undefined).map((key) => [key, item[key]]));
}
