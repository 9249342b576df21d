/**
 * Holds the table of all served resources by group, version, resource and subresource. The rows of custom resources are added
 * and removed at run time. Built-in rows have the order of discovery, and later ones follow.
 */
import type { ResourceInfo } from '../../api/schema/schema.ts';
import type { ResourceCatalog, Rest } from '../model/rest.ts';

export interface MutableCatalog extends ResourceCatalog {
  /** Adds or replaces a resource of one version with its subresources, as one change. */
  set(rests: readonly Rest[]): void;
  /** Removes all rows and adds these, as one change. */
  replace(rests: readonly Rest[]): void;
  /** Removes a resource with its subresources. */
  remove(group: string, version: string, resource: string): void;
}

export function createCatalog({ catchUp }: Pick<ResourceCatalog, 'catchUp'> = {}): MutableCatalog {
  /** The rows by `group/version/resource`. Each has its endpoints by subresource. */
  const rows = new Map<string, Map<string, Rest>>();
  const listeners: (() => void)[] = [];
  let infos: readonly ResourceInfo[] | undefined;

  const keyOf = (group: string, version: string, resource: string): string => `${group}/${version}/${resource}`;
  function changed(): void {
    infos = undefined;
    for (const listener of listeners) listener();
  }

  function set(rests: readonly Rest[]): void {
    const fresh = new Map<string, Map<string, Rest>>();
    for (const rest of rests) {
      const { group, version, resource } = rest.info;
      const key = keyOf(group, version, resource);
      const row = fresh.get(key) ?? new Map<string, Rest>();
      row.set(rest.subresource?.name ?? '', rest);
      fresh.set(key, row);
    }
    for (const [key, row] of fresh) rows.set(key, row);
    changed();
  }

  return {
    find: (group, version, resource, subresource) => rows.get(keyOf(group, version, resource))?.get(subresource),
    resources() {
      if (infos === undefined) {
        const found: ResourceInfo[] = [];
        for (const row of rows.values()) {
          const rest = row.get('');
          if (rest !== undefined) found.push(rest.info);
        }
        infos = found;
      }
      return infos;
    },
    onChange(listener) {
      listeners.push(listener);
    },
    catchUp,
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
