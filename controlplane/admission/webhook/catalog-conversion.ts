/**
 * The resources, versions and conversions that webhook plugins look up, from the built-in table and the catalog of custom
 * resources.
 */
import { type GroupVersionResource, type KubeObject, apiVersionOf } from '../../../api/meta/object.ts';
import type { ResourceCatalog } from '../../model/rest.ts';
import { decodeStruct } from '../../../api/schema/decode.ts';
import type { Schema } from '../../../api/schema/schema.ts';
import type { VersionConversion } from '../policy/request-view.ts';

/** Events of both groups are the same objects. */
const keptAs = (group: string): string => (group === 'events.k8s.io' ? '' : group);

/**
 * The registry may provide `convert` and `applyDefaults`; without them only the `apiVersion` of an object changes, and fields
 * of a patch are not defaulted.
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
  const infoOf = ({ group, version, resource }: GroupVersionResource) =>
    catalog.find(group, version, resource, '')?.info;
  return {
    isNamespaced: (resource) => infoOf(resource)?.namespaced ?? false,
    equivalents(resource) {
      return catalog
        .resources()
        .filter(
          (info) =>
            info.resource === resource.resource &&
            apiVersionOf(info) !== apiVersionOf(resource) &&
            keptAs(info.group) === keptAs(resource.group),
        )
        .map(({ group, version, resource: name }) => ({ group, version, resource: name }));
    },
    kindOf(resource, subresource) {
      const info = infoOf(resource);
      if (info === undefined) return undefined;
      const sub = info.subresources.find((one) => one.name === subresource);
      return { group: sub?.group ?? info.group, version: sub?.version ?? info.version, kind: sub?.kind ?? info.kind };
    },
    convert,
    conform(object, kind) {
      const struct = schema.kind(kind.group, kind.version, kind.kind);
      const fitted = struct === undefined ? object : (decodeStruct(struct, object).value as unknown as KubeObject);
      const made = { ...fitted, apiVersion: apiVersionOf(kind), kind: kind.kind };
      applyDefaults(made);
      return made;
    },
  };
}
