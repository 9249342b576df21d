/** Validates the defaults of a schema: they must have no unknown fields, and must be valid by the schema and its rules. */
import { FieldError, invalid } from '../../../api/meta/field-error.ts';
import { cloneJson, jsonEqual } from '../../../api/meta/json-equality.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonValue } from '../../../api/meta/object.ts';
import { itemsOf, type JsonSchema } from './json-schema.ts';
import { pruneValue } from './pruning.ts';
import { compileRules } from './rule-compilation.ts';
import { validateRules } from './rule-validation.ts';
import { embeddedErrors } from './embedded-objects.ts';
import { validateValue } from './value-validation.ts';

/** Validates the defaults of a version's schema at `path`, whose own default is a whole object. */
export function schemaDefaultErrors(schema: JsonSchema, path: string): FieldError[] {
  return defaultErrors({ ...schema, 'x-kubernetes-embedded-resource': true }, path);
}

/**
 * Returns the errors of the defaults of a schema. `path` is its path. Members without a schema of their own have no defaults.
 */
function defaultErrors(schema: JsonSchema, path: string): FieldError[] {
  const errors = schema.default === undefined ? [] : errorsOfDefault(schema, schema.default, `${path}.default`);
  const items = itemsOf(schema);
  if (items !== undefined) errors.push(...defaultErrors(items, `${path}.items`));
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    errors.push(...defaultErrors(inner, `${path}.properties[${name}]`));
  }
  return errors;
}

function errorsOfDefault(schema: JsonSchema, value: JsonValue, path: string): FieldError[] {
  const unknown: string[] = [];
  const pruned = pruneValue(cloneJson(value), schema, '', unknown);
  const errors = jsonEqual(pruned, value) ? [] : [invalid(path, value, 'must not have unknown fields')];
  const misplaced = isJsonObject(value) ? embeddedErrors(value, schema, '') : [];
  const invalidParts = misplaced.length > 0 ? misplaced : validateValue(value, withoutEither(schema), '');
  if (invalidParts.length > 0) return [...errors, ...invalidParts.map((error) => placed(error, path))];
  const isResource = schema['x-kubernetes-embedded-resource'] === true;
  const { rules } = compileRules(schema, path, { isResource });
  const failed = validateRules(rules, value, value, { path });
  // The default is also validated as a new value, without an old one.
  return [...errors, ...(failed.length > 0 ? failed : validateRules(rules, value, undefined, { path }))];
}

/** Returns an error with its path in the definition. Errors of alternatives have no field of their own. */
function placed({ type, field, value, detail }: FieldError, path: string): FieldError {
  return new FieldError(type, field === '' || field === '<nil>' ? path : `${path}.${field}`, value, detail);
}

/**
 * Returns the schema without `x-kubernetes-int-or-string`, because only validation rules check that such a default is an
 * integer or a text, as in kube-apiserver.
 */
function withoutEither(schema: JsonSchema): JsonSchema {
  const { 'x-kubernetes-int-or-string': _either, properties, additionalProperties, ...otherKeywords } = schema;
  const items = itemsOf(schema);
  return {
    ...otherKeywords,
    ...(properties === undefined
      ? {}
      : {
          properties: Object.fromEntries(
            Object.entries(properties).map(([name, inner]) => [name, withoutEither(inner)]),
          ),
        }),
    ...(additionalProperties === undefined
      ? {}
      : {
          additionalProperties:
            typeof additionalProperties === 'object' ? withoutEither(additionalProperties) : additionalProperties,
        }),
    ...(items === undefined ? {} : { items: withoutEither(items) }),
  };
}
