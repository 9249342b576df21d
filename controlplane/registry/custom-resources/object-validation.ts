/**
 * Validates a custom resource on a write: its schema, the metadata of embedded objects, its rules in CEL, and its scale. On an
 * update, errors of the schema and the rules are ignored for unchanged values (ratcheting).
 */
import { FieldError, invalid } from '../../../api/meta/field-error.ts';
import type { JsonObject, JsonValue, KubeObject } from '../../../api/meta/object.ts';
import type { ScaleSubresource } from '../kinds/apiextensions/definition.ts';
import { validateScaleFields } from './custom-scale.ts';
import { Correlation } from '../schemas/correlation.ts';
import type { JsonSchema } from '../schemas/json-schema.ts';
import { embeddedErrorsWithin } from '../schemas/embedded-objects.ts';
import type { CompiledRules } from '../schemas/rule-compilation.ts';
import { inTurns, type Pausing } from '../../../api/machinery/pausing.ts';
import { ruleErrors } from '../schemas/rule-validation.ts';
import { JunctionError } from '../schemas/junction-error.ts';
import { repeatedItems, validateObject, validateValue } from '../schemas/value-validation.ts';

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
  let remaining = limit;
  const count = (one: JsonValue | undefined): boolean => {
    remaining -= 1;
    if (typeof one !== 'object' || one === null) return remaining < 0;
    if (Array.isArray(one)) return one.some(count);
    // `Object.values` of a wide object would itself be expensive.
    for (const key in one) if (remaining < 0 || count(one[key])) return true;
    return remaining < 0;
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
