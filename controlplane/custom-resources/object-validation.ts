/**
 * Everything that is checked of a custom resource on a write: its schema, the metadata of embedded objects, its rules in
 * CEL, its scale. On an update, what was wrong before and has not changed is let through.
 */
import { FieldError, invalid } from '../../api/meta/field-error.ts';
import { jsonEqual } from '../../api/meta/json-equality.ts';
import { nameIsSubdomain } from '../../api/meta/names.ts';
import type { JsonObject, JsonValue, KubeObject, ObjectMeta } from '../../api/meta/object.ts';
import { validateMetadata } from '../../api/meta/validation.ts';
import type { ScaleSubresource } from './definition.ts';
import { validateScaleFields } from './custom-scale.ts';
import { isObject, itemsOf, type JsonSchema, memberSchema } from './json-schema.ts';
import type { CompiledRules } from './rule-compilation.ts';
import { atOnce, inTurns, type Pausing } from './pausing.ts';
import { ruleErrors } from './rule-validation.ts';
import { JunctionError, repeatedItems, validateObject, validateValue } from './value-validation.ts';

export interface ObjectValidator {
  readonly schema: JsonSchema;
  readonly rules: CompiledRules;
  readonly scale: ScaleSubresource | undefined;
}

/** Errors after which rules cannot be trusted to be about what they were written for. */
const BLOCKING: ReadonlySet<string> = new Set([
  'FieldValueNotSupported',
  'FieldValueRequired',
  'FieldValueTooLong',
  'FieldValueTooMany',
  'FieldValueTypeInvalid',
]);
const NOT_CHECKED =
  'some validation rules were not checked because the object was invalid; correct the existing errors to complete validation';

export interface ValidationOptions {
  /** Called for each rule that fails on what has not changed. */
  readonly warn?: (text: string) => void;
  /** Only `status` is written: the schema applies to it alone. */
  readonly statusOnly?: boolean;
}

export const validateCustomObject = (...args: Parameters<typeof customObjectErrors>): FieldError[] =>
  atOnce(customObjectErrors(...args));

/** As `validateCustomObject`, but others get the event loop between rules that cost much. */
export const validateCustomObjectInTurns = (
  ...args: Parameters<typeof customObjectErrors>
): FieldError[] | Promise<FieldError[]> => inTurns(customObjectErrors(...args));

function* customObjectErrors(
  validator: ObjectValidator,
  object: KubeObject,
  old: KubeObject | undefined,
  { warn, statusOnly = false }: ValidationOptions = {},
): Pausing<FieldError[]> {
  const members = object as unknown as JsonObject;
  const before = old as unknown as JsonObject | undefined;
  const { schema, rules, scale } = validator;
  const errors = statusOnly ? statusErrors(members, before, schema) : schemaErrors(members, before, schema);
  if (scale !== undefined) errors.push(...validateScaleFields(object, scale, { statusOnly }));
  if (!statusOnly) errors.push(...embeddedErrors(members, schema, '', true));
  // A list that had an item twice before may have it again.
  if (before === undefined || repeatedItems(before, schema).length === 0)
    errors.push(...repeatedItems(members, schema));
  if (!rules.isEmpty) {
    if (errors.some(({ type }) => BLOCKING.has(type))) errors.push(invalid('<nil>', null, NOT_CHECKED));
    else errors.push(...(yield* ruleErrors(rules, members, before, { warn })));
  }
  return errors;
}

function schemaErrors(object: JsonObject, old: JsonObject | undefined, schema: JsonSchema): FieldError[] {
  const found = validateObject(object, schema);
  return old === undefined ? found : found.filter((error) => !isUnchanged(placeOf(error), object, old, schema));
}

/** kube-apiserver validates the status by itself, so the texts have paths within it and the fields have whole paths. */
function statusErrors(object: JsonObject, old: JsonObject | undefined, schema: JsonSchema): FieldError[] {
  const status = object['status'];
  const own = schema.properties?.['status'];
  if (status === undefined || own === undefined) return [];
  const before = old?.['status'];
  return validateValue(status, own, '')
    .filter((error) => before === undefined || !isUnchanged(placeOf(error), status, before, own))
    .map(({ type, field, value, detail }) => {
      const path =
        field === '' || field === '<nil>' ? 'status' : field.startsWith('[') ? `status${field}` : `status.${field}`;
      return new FieldError(type, path, value, detail);
    });
}

const placeOf = (error: FieldError): string => (error instanceof JunctionError ? error.at : error.field);

/** The innermost part of the path that can be told in both objects has the same value in both. */
function isUnchanged(path: string, object: JsonValue, old: JsonValue, schema: JsonSchema): boolean {
  if (path === '' || path === '<nil>') return jsonEqual(object, old);
  let now: JsonValue | undefined = object;
  let then: JsonValue | undefined = old;
  let inner: JsonSchema | undefined = schema;
  for (const [step] of path.matchAll(/[^.[\]]+|\[\d+\]/g)) {
    if (now === undefined || then === undefined) return false;
    if (step.startsWith('[')) {
      const at: JsonValue = now;
      const index = Number(step.slice(1, -1));
      const keys = inner?.['x-kubernetes-list-map-keys'];
      if (!Array.isArray(at) || !Array.isArray(then) || keys === undefined) return jsonEqual(now, then);
      const item: JsonValue | undefined = at[index];
      if (!isObject(item)) return false;
      const wanted = item;
      then = then.find((one) => isObject(one) && keys.every((key) => jsonEqual(one[key], wanted[key])));
      now = item;
      inner = inner === undefined ? undefined : itemsOf(inner);
    } else {
      if (!isObject(now) || !isObject(then)) return jsonEqual(now, then);
      if (!Object.hasOwn(now, step)) return jsonEqual(now, then);
      inner = inner === undefined ? undefined : memberSchema(inner, step);
      now = now[step];
      then = Object.hasOwn(then, step) ? then[step] : undefined;
    }
  }
  return then !== undefined && jsonEqual(now, then);
}

/** Metadata of objects inside the object. */
export function embeddedErrors(value: JsonValue, schema: JsonSchema, path: string, isRoot: boolean): FieldError[] {
  const errors: FieldError[] = [];
  const items = itemsOf(schema);
  if (Array.isArray(value) && items !== undefined) {
    value.forEach((item, index) => errors.push(...embeddedErrors(item, items, `${path}[${index}]`, false)));
  }
  if (!isObject(value)) return errors;
  if (schema['x-kubernetes-embedded-resource'] === true && !isRoot && isObject(value['metadata'])) {
    const rules = { namespaced: true, nameRule: nameIsSubdomain, builtIn: false };
    const metadata = { name: 'fake', ...value['metadata'] } as ObjectMeta;
    for (const error of validateMetadata({ namespace: 'fake', ...metadata }, rules)) {
      const field = path === '' ? error.field : `${path}.${error.field}`;
      errors.push(new FieldError(error.type, field, error.value, error.detail));
    }
  }
  for (const [name, member] of Object.entries(value)) {
    const inner = memberSchema(schema, name);
    if (inner === undefined || member === undefined) continue;
    errors.push(...embeddedErrors(member, inner, path === '' ? name : `${path}.${name}`, false));
  }
  return errors;
}
