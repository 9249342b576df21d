/** Reads the discovery of an aggregated server as rows like those of the catalog. */
import type { ResourceInfo, SubresourceInfo } from '../../api/schema/schema.ts';

interface ListedResource {
  readonly name?: string;
  readonly singularName?: string;
  readonly namespaced?: boolean;
  readonly group?: string;
  readonly version?: string;
  readonly kind?: string;
  readonly verbs?: readonly string[];
  readonly shortNames?: readonly string[];
  readonly categories?: readonly string[];
}

/** Converts an `APIResourceList` to rows; throws if it is invalid. */
export function rowsOf(group: string, version: string, list: unknown): ResourceInfo[] {
  const { resources } = (list ?? {}) as { readonly resources?: readonly ListedResource[] };
  if (!Array.isArray(resources)) throw new Error('the answer is no list of resources');
  const all: readonly ListedResource[] = resources;
  return all
    .filter(({ name = '' }) => name !== '' && !name.includes('/'))
    .map(
      ({
        name = '',
        singularName = '',
        kind = '',
        namespaced = false,
        verbs = [],
        shortNames = [],
        categories = [],
      }) => ({
        group,
        version,
        resource: name,
        kind,
        singular: singularName,
        shortNames,
        categories,
        namespaced,
        verbs,
        subresources: all
          .filter((one) => one.name?.startsWith(`${name}/`) === true)
          .map((one): SubresourceInfo => ({
            name: one.name?.slice(name.length + 1) ?? '',
            group: one.group ?? group,
            version: one.version ?? version,
            kind: one.kind ?? '',
            verbs: one.verbs ?? [],
          })),
        custom: { listKind: `${kind}List`, deprecation: '' },
      }),
    );
}
