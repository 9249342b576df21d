/**
 * Holds the table of all served resources by group, version, resource and subresource. The rows of custom resources are added
 * and removed at run time. Built-in rows have the order of discovery, and later ones follow.
 */
import type { ResourceInfo } from '../../api/schema/schema.ts';
import type { ResourceCatalog, Rest } from '../model/rest.ts';

/** The catalog for those who add rows. Listeners are called once for each change. */
export interface MutableCatalog extends ResourceCatalog {
  /** Adds or replaces resources with their subresources, as one change. */
  set(rests: readonly Rest[]): void;
  /** Removes all rows and adds these, as one change. */
  replace(rests: readonly Rest[]): void;
  /** Removes a resource of one version with its subresources. */
  remove(group: string, version: string, resource: string): void;
  /** Sets the function that `settled` calls. */
  settleBy(settled: NonNullable<ResourceCatalog['settled']>): void;
}

/** A resource of one version. It has its endpoints by subresource. */
interface Row {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly endpoints: Map<string, Rest>;
}

const NO_ROWS: readonly Row[] = [];

/** The catalog is empty at first. */
export function createCatalog({ catchUp }: Pick<ResourceCatalog, 'catchUp'> = {}): MutableCatalog {
  /** The rows by `group/version/resource`. */
  const rows = new Map<string, Row>();
  /** The rows by resource alone, which few share: each request is looked up here, without a joined key. */
  let byResource: ReadonlyMap<string, readonly Row[]> | undefined;
  const listeners = new Set<() => void>();
  let infos: readonly ResourceInfo[] | undefined;
  let settled: ResourceCatalog['settled'];

  const keyOf = (group: string, version: string, resource: string): string => `${group}/${version}/${resource}`;
  function changed(): void {
    infos = undefined;
    byResource = undefined;
    for (const listener of listeners) listener();
  }

  function set(rests: readonly Rest[]): void {
    const fresh = new Map<string, Row>();
    for (const rest of rests) {
      const { group, version, resource } = rest.info;
      const key = keyOf(group, version, resource);
      const row = fresh.get(key) ?? { group, version, resource, endpoints: new Map<string, Rest>() };
      row.endpoints.set(rest.subresource?.name ?? '', rest);
      fresh.set(key, row);
    }
    for (const [key, row] of fresh) rows.set(key, row);
    changed();
  }

  return {
    find(group, version, resource, subresource) {
      byResource ??= Map.groupBy(rows.values(), (row) => row.resource);
      for (const row of byResource.get(resource) ?? NO_ROWS)
        if (row.version === version && row.group === group) return row.endpoints.get(subresource);
      return undefined;
    },
    resources() {
      if (infos === undefined) {
        const found: ResourceInfo[] = [];
        for (const row of rows.values()) {
          const rest = row.endpoints.get('');
          if (rest !== undefined) found.push(rest.info);
        }
        infos = found;
      }
      return infos;
    },
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    catchUp,
    settled: (group, resource) => settled?.(group, resource),
    settleBy(by) {
      settled = by;
    },
    set,
    replace(rests) {
      rows.clear();
      set(rests);
    },
    remove(group, version, resource) {
      if (rows.delete(keyOf(group, version, resource))) changed();
    },
  };
}
