/** Validates the schema of a definition: its structure, its defaults, its keywords and its rules. */
import { type FieldError, forbidden, invalid } from '../../../api/meta/field-error.ts';
import { internalForm } from '../../../api/schema/internal-form.ts';
import { schemaDefaultErrors } from './default-validation.ts';
import type { JsonSchema } from './json-schema.ts';
import { compileRules } from './rule-compilation.ts';
import { isReadable, structuralErrors } from './structural-schema.ts';

/** Where the schema stands, for errors and for what is allowed there. */
export interface SchemaPlace {
  readonly schemaPath: string;
  /** Whether the version has a status subresource or, for a schema that all versions share, whether any of them has. */
  readonly hasStatus: boolean;
  /** Whether the stored definition already has this schema. */
  readonly isKnown: boolean;
}

/** The keywords that are allowed at the root of a schema with a status subresource. */
const AT_ROOT =
  'Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations';
const ROOT_WORDS: ReadonlySet<string> = new Set(
  AT_ROOT.split(' ').map((name) =>
    name === 'XPreserveUnknownFields'
      ? 'x-kubernetes-preserve-unknown-fields'
      : name === 'XValidations'
        ? 'x-kubernetes-validations'
        : `${name.charAt(0).toLowerCase()}${name.slice(1)}`,
  ),
);

const SCHEMA_TYPE = 'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps';

/** Keywords for which kube-apiserver distinguishes `false` from an absent value. */
const TRISTATE: ReadonlySet<string> = new Set(['default', 'additionalProperties', 'additionalItems']);

const isGiven = (name: string, value: unknown): boolean =>
  value !== undefined && value !== null && value !== '' && (value !== false || TRISTATE.has(name));

/**
 * Returns the errors of the schema, with `schemaPath` before their paths. Defaults are only validated if the structure is
 * valid, and rules only if both are.
 */
export function validateSchema(
  schema: JsonSchema,
  { schemaPath: path, hasStatus, isKnown }: SchemaPlace,
): FieldError[] {
  const errors: FieldError[] = [];
  if (hasStatus) {
    const other = Object.entries(schema).find(([name, value]) => !ROOT_WORDS.has(name) && isGiven(name, value));
    if (schema.type && schema.type !== 'object') {
      const why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled';
      errors.push(invalid(`${path}.type`, schema.type, why));
    } else if (other !== undefined) {
      const why = `only [${AT_ROOT}] fields are allowed at the root of the schema if the status subresource is enabled`;
      errors.push(invalid(path, internalForm(SCHEMA_TYPE, schema), why));
    }
  }
  if (schema.nullable === true) errors.push(forbidden(`${path}.nullable`, 'nullable cannot be true at the root'));
  const readable = isReadable(schema);
  const structural = readable ? structuralErrors(schema, path) : [];
  errors.push(...structural);
  const defaults = readable && structural.length === 0 ? schemaDefaultErrors(schema, path) : [];
  errors.push(...defaults);
  const skipRules = !readable || structural.length > 0 || defaults.length > 0;
  errors.push(...compileRules(schema, path, { judge: { isKnown, skipRules } }).errors);
  // Each other keyword that makes a schema unreadable has an error of its own.
  if (!readable && errors.length === 0) errors.push(invalid(path, '', "OpenAPIV3Schema 'schema' is not supported"));
  return errors;
}
