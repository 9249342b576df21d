/**
 * Validates the fields of a definition's version that field selectors may name: simple paths to scalars of the schema, at
 * most eight.
 */
import { duplicate, type FieldError, invalid, required, tooMany } from '../../../api/meta/field-error.ts';
import { readFieldPath } from './field-path.ts';
import type { JsonSchema } from './json-schema.ts';

/**
 * kube-apiserver looks for the schema only at the level of the selectable fields. Fields that all versions share need a schema
 * that all versions share, and fields of one version need a schema of that version.
 */
const WITHOUT_SCHEMA = {
  shared: 'may only be set when validations.schema is included',
  version: 'may only be set when `version.schema.openAPIV3Schema` is not included',
} as const;

/** The limit of kube-apiserver (KEP-4358). */
const MAX_SELECTABLE = 8;

/**
 * Returns the errors of selectable fields. `path` is `spec` for the fields that all versions share, and otherwise the path of
 * the version.
 */
export function selectableFieldErrors(
  fields: readonly { readonly jsonPath: string }[],
  schema: JsonSchema | undefined,
  path: string,
): FieldError[] {
  if (fields.length === 0) return [];
  if (schema === undefined)
    return [invalid(`${path}.selectableFields`, '', WITHOUT_SCHEMA[path === 'spec' ? 'shared' : 'version'])];
  const errors: FieldError[] = [];
  const seen = new Set<string>();
  fields.forEach(({ jsonPath }, index) => {
    const field = `${path}.selectableFields[${index}].jsonPath`;
    if (jsonPath === '') {
      errors.push(required(field));
      return;
    }
    const read = readFieldPath(jsonPath, schema, { brackets: false });
    if ('error' in read) {
      errors.push(invalid(field, jsonPath, `is an invalid path: ${read.error}`));
      return;
    }
    if (read.names[0] === 'metadata') errors.push(invalid(field, jsonPath, 'must not point to fields in metadata'));
    if (!['string', 'integer', 'boolean'].includes(read.schema.type ?? '')) {
      const text =
        'must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.';
      errors.push(invalid(field, jsonPath, text));
    }
    if (seen.has(read.shown)) errors.push(duplicate(field, jsonPath));
    seen.add(read.shown);
  });
  if (seen.size > MAX_SELECTABLE) errors.push(tooMany(`${path}.selectableFields`, seen.size, MAX_SELECTABLE));
  return errors;
}
