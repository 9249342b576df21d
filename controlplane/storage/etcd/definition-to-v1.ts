/**
 * Converts a CustomResourceDefinition of `apiextensions.k8s.io/v1beta1`, the version in which kube-apiserver stores it, to
 * `v1`. In `v1beta1`, the fields that all versions share are in `spec` itself.
 */
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';

/** The members of `spec` that `v1` has in each version, with their name there. */
const OF_VERSIONS = ['subresources', 'additionalPrinterColumns', 'selectableFields'] as const;

/** Converts the JSON of a definition. Pure. */
export function definitionToV1(definition: JsonObject): JsonObject {
  const spec = objectIn(definition['spec']) ?? {};
  const { version, versions, validation, conversion, ...others } = spec;
  for (const name of OF_VERSIONS) delete others[name];
  const listed = Array.isArray(versions) && versions.length > 0 ? versions : undefined;
  const all = listed ?? [{ name: version ?? '', served: true, storage: true }];
  const shared = { schema: validation, ...Object.fromEntries(OF_VERSIONS.map((name) => [name, spec[name]])) };
  return {
    ...definition,
    apiVersion: 'apiextensions.k8s.io/v1',
    spec: {
      ...others,
      versions: all.map((one) => withColumnPaths({ ...present(shared), ...objectIn(one) })),
      ...(conversion === undefined ? {} : { conversion: conversionToV1(objectIn(conversion) ?? {}) }),
    },
  };
}

function objectIn(value: JsonValue | undefined): JsonObject | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
}

function present(members: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined && value !== null));
}

/** Renames the paths of columns: `v1beta1` writes `JSONPath`, and `v1` writes `jsonPath`. */
function withColumnPaths(version: JsonObject): JsonObject {
  const columns = version['additionalPrinterColumns'];
  if (!Array.isArray(columns)) return version;
  return {
    ...version,
    additionalPrinterColumns: columns.map((column) => {
      const { JSONPath: path, ...members } = objectIn(column) ?? {};
      return path === undefined ? members : { ...members, jsonPath: path };
    }),
  };
}

function conversionToV1(conversion: JsonObject): JsonObject {
  const { webhookClientConfig: clientConfig, conversionReviewVersions, ...members } = conversion;
  if (clientConfig === undefined && conversionReviewVersions === undefined) return members;
  if (members['strategy'] !== 'Webhook') return members;
  return { ...members, webhook: present({ clientConfig, conversionReviewVersions }) };
}
