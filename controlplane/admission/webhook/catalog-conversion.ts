/** What webhooks ask about resources, from the table of built-in ones and the catalog of custom ones. */
import type { GroupVersionResource, KubeObject } from '../../../api/meta/object.ts';
import { apiVersionOf } from '../../../api/meta/object.ts';
import type { ResourceCatalog } from '../../registry/rest.ts';
import { decodeStruct } from '../../../api/schema/decode.ts';
import type { Schema } from '../../../api/schema/schema.ts';
import type { WebhookConversion } from './webhooks.ts';

/** `convert` may be given by the registry; without it an object only changes its name of the version. */
export function catalogConversion(
  catalog: ResourceCatalog,
  schema: Schema,
  convert: WebhookConversion['convert'] = (object, kind) => ({
    ...object,
    apiVersion: apiVersionOf(kind),
    kind: kind.kind,
  }),
): WebhookConversion {
  const infoOf = ({ group, version, resource }: GroupVersionResource) =>
    catalog.find(group, version, resource, '')?.info;
  return {
    isNamespaced: (resource) => infoOf(resource)?.namespaced ?? false,
    equivalents(resource) {
      return catalog
        .resources()
        .filter(
          (info) =>
            info.resource === resource.resource && info.version !== resource.version && info.group === resource.group,
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
      if (struct === undefined) return object;
      return {
        ...(decodeStruct(struct, object).value as unknown as KubeObject),
        apiVersion: apiVersionOf(kind),
        kind: kind.kind,
      };
    },
  };
}
