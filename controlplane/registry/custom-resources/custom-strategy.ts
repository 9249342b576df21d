/** Creates the strategy of a custom resource in one of its versions. The definition determines it. */
import { quote, type FieldError } from '../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import { qualifiedNameErrors } from '../../../api/meta/names.ts';
import type { JsonValue, KubeObject } from '../../../api/meta/object.ts';
import { restore } from '../generic-strategy.ts';
import type { Conversion, Strategy, StrategyContext, UpdateStrategy } from '../strategy.ts';
import type { DefinitionVersion } from '../kinds/apiextensions/definition.ts';
import { findAll, parseJsonPath } from '../schemas/json-path.ts';
import type { JsonSchema } from '../schemas/json-schema.ts';
import { validateCustomObjectInTurns } from './object-validation.ts';
import { printerColumns } from './printer-columns.ts';
import { compileRules } from '../schemas/rule-compilation.ts';
import { asServed } from './version-conversion.ts';
import { STANDARD_FINALIZERS } from '../../../api/meta/validation.ts';

interface CustomStrategyOptions {
  readonly version: DefinitionVersion;
  readonly schema: JsonSchema;
  /**
   * The strategy validates objects in the served version. The store passes them in the stored version, except for those that a
   * webhook converts.
   */
  readonly conversion: Conversion;
}

/** Creates the strategy. */
export function customStrategy({ version, schema, conversion }: CustomStrategyOptions): Strategy {
  const hasStatus = version.subresources?.status !== undefined;
  const validation = validationOf({ version, schema, conversion });
  const base: Strategy = {
    managesGeneration: true,
    requiresResourceVersion: true,
    ...validation,
    changesGeneration:
      conversion.convertAll === undefined
        ? (object, old) =>
            !sameDesiredState(conversion.asWritten?.(object) ?? object, asServed(conversion, old), hasStatus)
        : (object, old) => !sameDesiredState(object, old, hasStatus),
    selectableFields: fieldReaders(version.selectableFields ?? []),
    columns: printerColumns(version.additionalPrinterColumns),
  };
  if (!hasStatus) return base;
  return {
    ...base,
    prepareForCreate(object) {
      delete object['status'];
    },
    prepareForUpdate: (object, old) => restore(object, old, 'status'),
    resetFields: [['status']],
    status: statusStrategy(schema, validationOf({ version, schema, conversion }, { statusOnly: true })),
  };
}

type Validation = Pick<Strategy, 'validateCreate' | 'validateUpdate' | 'warningsOnCreate' | 'warningsOnUpdate'>;

/** Returns the functions of a strategy that validate by the schema and the rules of the served version. */
function validationOf(
  { version, schema, conversion }: CustomStrategyOptions,
  { statusOnly = false }: { readonly statusOnly?: boolean } = {},
): Validation {
  const { rules } = compileRules(schema, '');
  const hasStatus = version.subresources?.status !== undefined;
  const validator = { schema, rules, scale: version.subresources?.scale };
  const validate = (
    object: KubeObject,
    old: KubeObject | undefined,
    { request, metadataErrors: earlier = [] }: StrategyContext,
  ): FieldError[] | Promise<FieldError[]> => {
    // Refused writes have these warnings as well.
    const warn = (text: string): void => request.warn(text);
    return validateCustomObjectInTurns(validator, object, old, { warn, statusOnly, earlier });
  };
  const warningsOnUpdate = (object: KubeObject, old: KubeObject): string[] =>
    finalizerWarnings(object.metadata.finalizers, old.metadata.finalizers);
  const warningsOnCreate = ({ metadata }: KubeObject): string[] => finalizerWarnings(metadata.finalizers, []);
  const view = (object: KubeObject): KubeObject =>
    conversion.convertAll === undefined ? writtenView(conversion, object, { hasStatus, statusOnly }) : object;
  return {
    validateCreate: (object, context) => validate(view(object), undefined, context),
    validateUpdate: (object, old, context) => validate(view(object), view(old), context),
    warningsOnCreate,
    warningsOnUpdate,
  };
}

/** Returns the served object, with the members that the client wrote and the stored version does not have. */
function writtenView(
  conversion: Conversion,
  object: KubeObject,
  { hasStatus, statusOnly }: { readonly hasStatus: boolean; readonly statusOnly: boolean },
): KubeObject {
  const served = asServed(conversion, object);
  const written = conversion.asWritten?.(object);
  if (written === undefined) return served;
  const [spec, status] = statusOnly ? [served, written] : hasStatus ? [written, served] : [written, written];
  const { status: _status, ...withoutStatus } = spec;
  return {
    ...withoutStatus,
    metadata: served.metadata,
    ...(status['status'] === undefined ? {} : { status: status['status'] }),
  };
}

/** Whether the objects are equal apart from metadata, and apart from the status if it is a subresource. */
function sameDesiredState(object: KubeObject, old: KubeObject, hasStatus: boolean): boolean {
  const bare = ({ metadata: _metadata, apiVersion: _apiVersion, ...members }: KubeObject): object => {
    if (hasStatus) delete members['status'];
    return members;
  };
  return jsonEqual(bare(object), bare(old));
}

/** Writes `status` and, of the metadata, only the managed fields and the resource version. */
function statusStrategy(
  schema: JsonSchema,
  { validateCreate: _validateCreate, warningsOnCreate: _warningsOnCreate, ...validation }: Validation,
): UpdateStrategy {
  const others = Object.keys(schema.properties ?? {}).filter((name) => name !== 'status' && name !== 'metadata');
  return {
    prepareForUpdate(object, old) {
      for (const field of new Set([...Object.keys(object), ...Object.keys(old)])) {
        if (!['status', 'metadata', 'kind', 'apiVersion'].includes(field)) restore(object, old, field);
      }
      const { managedFields, resourceVersion } = object.metadata;
      object.metadata = { ...old.metadata };
      if (resourceVersion !== undefined) object.metadata.resourceVersion = resourceVersion;
      if (managedFields === undefined) delete object.metadata.managedFields;
      else object.metadata.managedFields = managedFields;
    },
    ...validation,
    resetFields: [['metadata'], ...others.map((name) => [name])],
  };
}

/** Returns the warnings for added finalizers. */
function finalizerWarnings(
  finalizers: readonly string[] | null | undefined,
  old: readonly string[] | null | undefined,
): string[] {
  const added = [...new Set(finalizers ?? [])].filter((name) => old?.includes(name) !== true).sort();
  return added.flatMap((name) => {
    const shown = `metadata.finalizers: ${quote(name)}:`;
    const texts = qualifiedNameErrors(name).map((text) => `${shown} ${text}`);
    if (name.includes('/') || STANDARD_FINALIZERS.has(name)) return texts;
    const kind = name.includes('.') ? 'name including a path (/)' : 'name';
    const why = 'to avoid accidental conflicts with other finalizer writers';
    return [...texts, `${shown} prefer a domain-qualified finalizer ${kind} ${why}`];
  });
}

/** The selectable fields of a version: how the text of each is read from an object. */
export type FieldReaders = Readonly<Record<string, (object: KubeObject) => string>>;

/** Returns functions that read the selectable fields of a definition as text. */
export function fieldReaders(fields: readonly { readonly jsonPath: string }[]): FieldReaders {
  const readers: Record<string, (object: KubeObject) => string> = {};
  for (const { jsonPath } of fields) {
    const path = parseJsonPath(jsonPath);
    readers[jsonPath.slice(1)] = (object) => {
      const value = path === undefined ? undefined : findAll(object as unknown as JsonValue, path)[0];
      return value === undefined || value === null ? '' : String(value as string | number | boolean);
    };
  }
  return readers;
}
