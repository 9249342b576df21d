/**
 * Looks up resources, versions and conversions in the catalog and the schema, for the plugins of webhooks and policies.
 */
import { stringifyJson } from '../../../../api/codec/json.ts';
import { invalid } from '../../../../api/meta/field-error.ts';
import { isJsonObject } from '../../../../api/meta/json-object.ts';
import {
  type GroupVersionKind,
  type GroupVersionResource,
  type JsonObject,
  type KubeObject,
  apiVersionOf,
  parseApiVersion,
} from '../../../../api/meta/object.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import { newErrorWithoutReason, newInvalid } from '../../../../api/meta/status-error.ts';
import type { ResourceCatalog } from '../../../model/rest.ts';
import { DecodeError, decodeStruct } from '../../../../api/schema/decode.ts';
import { withoutEmpties } from '../../../../api/schema/empty-values.ts';
import type { Schema, StructType } from '../../../../api/schema/schema.ts';
import { checkPatchedKind, checkPatchedObject } from '../policy/patched-object.ts';
import type { VersionConversion } from '../policy/request-view.ts';

const OBJECT_META = 'io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta';

/** Returns a member of metadata with the type that it must have, or nothing. */
function readMember(struct: StructType, name: string, value: unknown): object {
  try {
    return decodeStruct(struct, { [name]: value }).value;
  } catch (error) {
    if (error instanceof DecodeError) return {};
    throw error;
  }
}

/** Returns the same resource in other versions, and in other groups whose objects are stored together with it. */
function equivalents(catalog: ResourceCatalog, resource: GroupVersionResource): GroupVersionResource[] {
  return catalog
    .resources()
    .filter(
      (info) =>
        info.resource === resource.resource &&
        apiVersionOf(info) !== apiVersionOf(resource) &&
        storedGroupOf(info.group) === storedGroupOf(resource.group),
    )
    .map(({ group, version, resource: name }) => ({ group, version, resource: name }));
}

function serialized(schema: Schema, object: KubeObject): KubeObject {
  const { group, version } = parseApiVersion(object.apiVersion ?? '') ?? { group: '', version: '' };
  const struct = schema.kind(group, version, object.kind ?? '');
  if (struct === undefined) return object;
  return withoutEmpties(struct, object as unknown as JsonObject) as unknown as KubeObject;
}

/** Returns the group under which objects are stored. Events of both groups are the same objects. */
const storedGroupOf = (group: string): string => (group === 'events.k8s.io' ? '' : group);

/**
 * Returns the conversion of objects to the versions that webhooks match. The registry may provide `convert` and
 * `applyDefaults`; without them only the `apiVersion` and the `kind` of an object change, and fields of a patch are not
 * defaulted.
 */
export function catalogConversion(
  catalog: ResourceCatalog,
  schema: Schema,
  convert: VersionConversion['convert'] = (object, kind) => ({
    ...object,
    apiVersion: apiVersionOf(kind),
    kind: kind.kind,
  }),
  applyDefaults: (object: KubeObject) => void = () => undefined,
): VersionConversion {
  const metadataStruct = schema.struct(OBJECT_META);

  /**
   * Throws for another group or kind, and for a version that the group does not have. Drops members of the metadata that have
   * another type than ObjectMeta declares, and empty lists.
   */
  function customObject(object: KubeObject, wanted: GroupVersionKind): KubeObject {
    const { kind, apiVersion = '', metadata } = object as Partial<KubeObject>;
    if (typeof kind !== 'string' || kind === '')
      throw new Error(`Object 'Kind' is missing in '${stringifyJson(object)}'`);
    const { group, version } = parseApiVersion(apiVersion) ?? { group: '', version: '' };
    if (group !== wanted.group || schemaVersions(group).has(version) === false) {
      const text = `${apiVersion}, Kind=${kind} is unstructured and is not suitable for converting to`;
      throw newErrorWithoutReason(`${text} ${quoteText(apiVersionOf(wanted))}`);
    }
    if (kind !== wanted.kind)
      throw newInvalid({ group, resource: kind }, metadata?.name ?? '', [
        invalid('kind', kind, `must be ${wanted.kind}`),
      ]);
    const members = Object.entries(isJsonObject(metadata) ? metadata : {}).flatMap(([name, value]) => {
      const read = metadataStruct === undefined ? { [name]: value } : readMember(metadataStruct, name, value);
      return Object.entries(read).filter(([, member]) => !Array.isArray(member) || member.length > 0);
    });
    return { ...object, metadata: Object.fromEntries(members) };
  }

  const schemaVersions = (group: string): ReadonlySet<string> =>
    new Set(catalog.resources().flatMap((info) => (info.group === group ? [info.version] : [])));

  const infoOf = ({ group, version, resource }: GroupVersionResource) =>
    catalog.find(group, version, resource, '')?.info;
  return {
    isNamespaced: (resource) => infoOf(resource)?.namespaced ?? false,
    equivalents: (resource) => equivalents(catalog, resource),
    kindOf(resource, subresource) {
      const info = infoOf(resource);
      if (info === undefined) return undefined;
      const sub = info.subresources.find((one) => one.name === subresource);
      return { group: sub?.group ?? info.group, version: sub?.version ?? info.version, kind: sub?.kind ?? info.kind };
    },
    convert,
    conform(object, kind) {
      const struct = schema.kind(kind.group, kind.version, kind.kind);
      if (struct !== undefined) checkPatchedKind(schema, object, kind);
      const fitted =
        struct === undefined
          ? customObject(object, kind)
          : (decodeStruct(struct, object).value as unknown as KubeObject);
      const conformed = { ...fitted, apiVersion: apiVersionOf(kind), kind: kind.kind };
      applyDefaults(conformed);
      return conformed;
    },
    checkPatched: (object, kind) => checkPatchedObject(schema, object, kind),
    serialized: (object) => serialized(schema, object),
  };
}
