/** Creates the rows of the catalog for a definition, with their endpoints: one set for each version. */
import { apiVersionOf, type KubeObject } from '../../../api/meta/object.ts';
import type { Schema, StructType, SubresourceInfo, ResourceInfo } from '../../../api/schema/schema.ts';
import { compareVersions } from '../../../api/meta/version-order.ts';
import type { FieldManagement, OtherVersion, VersionLookup } from '../field-management.ts';
import type { Decoder, ExpectedKind } from '../object-decoding.ts';
import { createResourceRest, createSubresourceRest } from '../resource-rest.ts';
import type { ServedVersion } from '../version-codec.ts';
import type { Rest } from '../../model/rest.ts';
import { createScaleRest } from '../scale-rest.ts';
import type { StorageForm, Store } from '../store.ts';
import type { Conversion, Strategy } from '../strategy.ts';
import { customDecoder } from './custom-decoder.ts';
import { customScale } from './custom-scale.ts';
import { customStrategy } from './custom-strategy.ts';
import type { Definition, DefinitionVersion } from '../kinds/apiextensions/definition.ts';
import type { JsonSchema } from '../schemas/json-schema.ts';
import { createSchemaReader } from './schema-reader.ts';
import { structTypeOf } from '../schemas/schema-type.ts';
import { renamingConversion, type VersionSchema } from './version-conversion.ts';
import { type CallConversion, type WebhookConversion, webhookConversion } from './webhook-conversion.ts';

/** What the endpoints of all custom resources share. */
export interface ServingParts {
  readonly schema: Schema;
  readonly decoder: Decoder;
  readonly fieldManagement: (expected: ExpectedKind, decoder: Decoder, others?: VersionLookup) => FieldManagement;
  /** Calls the webhooks of definitions that convert by webhook. */
  readonly callConversion: CallConversion;
  /** The type of ObjectMeta. */
  readonly metadata: StructType;
}

/** One served version of a definition. */
export interface ServedSet {
  readonly info: ResourceInfo;
  readonly strategy: Strategy;
  readonly schema: JsonSchema;
  /** The type of the objects, by which apply configurations are merged. */
  readonly struct: StructType;
  /** The revision of the definition from which this was created. */
  readonly revision: string;
  readonly conversion: Conversion;
  readonly rests: readonly Rest[];
}

const VERBS = ['delete', 'deletecollection', 'get', 'list', 'patch', 'create', 'update', 'watch'];
const SUB_VERBS = ['get', 'patch', 'update'];
const EMPTY_SCHEMA: JsonSchema = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };

/** Returns the schema of a version, or one that preserves all fields if it has none. */
const schemaOf = (version: DefinitionVersion): JsonSchema => version.schema?.openAPIV3Schema ?? EMPTY_SCHEMA;

/** Returns the schemas of all versions, served or not. */
export const versionSchemas = (versions: readonly DefinitionVersion[]): VersionSchema[] =>
  versions.map((version) => ({ name: version.name, schema: schemaOf(version) }));

/**
 * Returns the endpoints of each served version of a definition. `base` contains the cache and the storage, for which each
 * version has its own strategy.
 */
export function servedVersions(
  definition: Definition,
  base: Omit<Store, 'info' | 'strategy'>,
  parts: ServingParts,
): ServedSet[] {
  const stored = definition.spec.versions.find((version) => version.storage);
  if (stored === undefined) return [];
  const terminating = definition.metadata.deletionTimestamp !== undefined;
  // The objects of a terminating definition are deleted in the stored version, which no webhook has to convert.
  return definition.spec.versions
    .filter((version) => version.served || (terminating && version === stored))
    .sort((a, b) => compareVersions(a.name, b.name))
    .map((version) => servedVersion(definition, { version, stored, terminating }, base, parts));
}

interface VersionParts {
  readonly version: DefinitionVersion;
  readonly stored: DefinitionVersion;
  readonly terminating: boolean;
}

function servedVersion(
  definition: Definition,
  { version, stored, terminating }: VersionParts,
  base: Omit<Store, 'info' | 'strategy'>,
  parts: ServingParts,
): ServedSet {
  const { group } = definition.spec;
  const info = infoOf(definition, version);
  const schema = schemaOf(version);
  const versions = {
    stored: { name: stored.name, schema: schemaOf(stored) },
    served: { name: version.name, schema },
  };
  const conversion = conversionOf(definition, versions, parts);
  const strategy = customStrategy({ version, schema, conversion });
  const store: Store = { ...base, info, strategy, storageForm: storageFormOf(conversion) };
  const expected: ExpectedKind = {
    group,
    version: version.name,
    kind: info.kind,
    struct: structTypeOf({ group, version: version.name, kind: info.kind }, schema, parts.metadata),
    reader: createSchemaReader(schema, parts.metadata),
    applyDefaults: undefined,
  };
  const decoder = customDecoder(parts.decoder);
  const fieldManagement = parts.fieldManagement(
    expected,
    decoder,
    otherVersions(definition, version, parts.metadata, conversion.convertTo),
  );
  const createRefusal = terminating ? 'create not allowed while custom resource definition is terminating' : undefined;
  const served: ServedVersion = { store, info, expected, conversion, decoder, fieldManagement, createRefusal };
  const rests: Rest[] = [createResourceRest(served)];
  for (const subresource of info.subresources) {
    if (subresource.name === 'status' && strategy.status !== undefined) {
      rests.push(createSubresourceRest(served, subresource, strategy.status));
    } else if (version.subresources?.scale !== undefined) {
      rests.push(createScaleRest(served, subresource, parts.schema, customScale(version.subresources.scale)));
    }
  }
  const { uid = '', generation = 0 } = definition.metadata;
  return { info, strategy, schema, struct: expected.struct, revision: `${uid}/${generation}`, conversion, rests };
}

/**
 * Returns the function that finds the version in which another owner of fields wrote: `refused` if the definition does not have
 * it, and `undefined` if it is the version `requested`. Without `convertTo`, a conversion changes only the name of the version.
 */
export function otherVersions(
  definition: Definition,
  requested: DefinitionVersion,
  metadata: StructType,
  convertTo?: WebhookConversion['convertTo'],
): VersionLookup {
  const { group, names, versions } = definition.spec;
  const found = new Map<string, OtherVersion>();
  return (apiVersion) => {
    const cached = found.get(apiVersion);
    if (cached !== undefined) return cached;
    const other = versions.find(({ name }) => apiVersionOf({ group, version: name }) === apiVersion);
    if (other === undefined) return 'refused';
    if (other.name === requested.name) return undefined;
    const struct = structTypeOf({ group, version: other.name, kind: names.kind }, schemaOf(other), metadata);
    const to = (version: string): OtherVersion['convert'] =>
      convertTo === undefined
        ? (object) => ({ ...object, apiVersion: apiVersionOf({ group, version }) })
        : onceFor((object) => convertTo(object, version));
    const lookup: OtherVersion = {
      struct,
      convert: to(other.name),
      restore: to(requested.name),
      keepsUndeclared: true,
    };
    found.set(apiVersion, lookup);
    return lookup;
  };
}

/** Calls the function once for each object, as long as the object exists, and again after a failure. */
function onceFor(convert: (object: KubeObject) => Promise<KubeObject>): (object: KubeObject) => Promise<KubeObject> {
  const converted = new WeakMap<KubeObject, Promise<KubeObject>>();
  return (object) => {
    const earlier = converted.get(object);
    if (earlier !== undefined) return earlier;
    const result = convert(object);
    converted.set(object, result);
    // The caller gets the failure.
    result.catch(() => converted.delete(object));
    return result;
  };
}

function conversionOf(
  { spec }: Definition,
  versions: { readonly stored: VersionSchema; readonly served: VersionSchema },
  { callConversion }: ServingParts,
): Conversion & Partial<WebhookConversion> {
  const { webhook, strategy } = spec.conversion ?? { strategy: 'None' };
  if (strategy !== 'Webhook' || webhook?.clientConfig === undefined)
    return renamingConversion(spec.group, versions.stored, versions.served);
  const reviewVersions = webhook.conversionReviewVersions ?? ['v1'];
  const { group, names } = spec;
  const options = { group, kind: names.kind, config: webhook.clientConfig, reviewVersions, call: callConversion };
  return webhookConversion(options, { ...versions, all: versionSchemas(spec.versions) });
}

/** Returns the conversions at reads and writes of the storage, if a webhook converts. */
function storageFormOf({ convertAll }: Conversion): StorageForm | undefined {
  if (convertAll === undefined) return undefined;
  const through = async (object: KubeObject, to: 'stored' | 'served'): Promise<KubeObject> =>
    (await convertAll([object], to))[0] ?? object;
  return { fromStorage: (stored) => through(stored, 'served'), toStorage: (object) => through(object, 'stored') };
}

function infoOf(definition: Definition, version: DefinitionVersion): ResourceInfo {
  const { spec, status } = definition;
  const names = status?.acceptedNames ?? spec.names;
  const { group } = spec;
  const subresources: SubresourceInfo[] = [];
  if (version.subresources?.status !== undefined) {
    subresources.push({ name: 'status', group, version: version.name, kind: spec.names.kind, verbs: SUB_VERBS });
  }
  if (version.subresources?.scale !== undefined) {
    subresources.push({ name: 'scale', group: 'autoscaling', version: 'v1', kind: 'Scale', verbs: SUB_VERBS });
  }
  return {
    group,
    version: version.name,
    resource: spec.names.plural,
    kind: spec.names.kind,
    singular: names.singular ?? '',
    shortNames: names.shortNames ?? [],
    categories: names.categories ?? [],
    namespaced: spec.scope === 'Namespaced',
    verbs: VERBS,
    subresources,
    custom: {
      listKind: names.listKind ?? `${spec.names.kind}List`,
      deprecation: deprecationOf(definition, version),
      storedVersion: spec.versions.find(({ storage }) => storage)?.name ?? version.name,
    },
  };
}

/** Returns the warning of a deprecated version, by default one that names the version to use instead, if there is one. */
function deprecationOf(definition: Definition, version: DefinitionVersion): string {
  if (version.deprecated !== true) return '';
  if (version.deprecationWarning !== undefined) return version.deprecationWarning;
  const { group, names, versions } = definition.spec;
  const better = versions
    .filter((one) => one.served && one.deprecated !== true && compareVersions(one.name, version.name) < 0)
    .sort((a, b) => compareVersions(a.name, b.name))[0];
  const text = `${group}/${version.name} ${names.kind} is deprecated`;
  return better === undefined ? text : `${text}; use ${group}/${better.name} ${names.kind}`;
}
