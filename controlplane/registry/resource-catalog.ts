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
  /** Returns the resources of a group that no definition defines. */
  builtIn(group: string): readonly ResourceInfo[];
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

const isCustom = ({ endpoints }: Row): boolean => endpoints.get('')?.info.custom !== undefined;

const NO_ROWS: readonly Row[] = [];

/** The catalog is empty at first. */
export function createCatalog({ catchUp }: Pick<ResourceCatalog, 'catchUp'> = {}): MutableCatalog {
  /** The rows by `group/version/resource`. */
  const rows = new Map<string, Row>();
  /** The rows by resource alone, which few share: each request is looked up here, without a joined key. */
  const byResource = new Map<string, Row[]>();
  const listeners = new Set<() => void>();
  let infos: readonly ResourceInfo[] | undefined;
  let builtIn: ReadonlyMap<string, readonly ResourceInfo[]> | undefined;
  let settled: ResourceCatalog['settled'];

  const keyOf = (group: string, version: string, resource: string): string => `${group}/${version}/${resource}`;
  function changed(): void {
    infos = undefined;
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
    for (const [key, row] of fresh) {
      drop(key);
      rows.set(key, row);
      const same = byResource.get(row.resource);
      if (same === undefined) byResource.set(row.resource, [row]);
      else same.push(row);
      if (!isCustom(row)) builtIn = undefined;
    }
    changed();
  }

  /** Drops a row, whose place in `rows` a row with its key takes. */
  function drop(key: string): boolean {
    const row = rows.get(key);
    if (row === undefined) return false;
    const others = byResource.get(row.resource)?.filter((one) => one !== row) ?? [];
    if (others.length === 0) byResource.delete(row.resource);
    else byResource.set(row.resource, others);
    if (!isCustom(row)) builtIn = undefined;
    return true;
  }

  function resources(): readonly ResourceInfo[] {
    if (infos === undefined) {
      const found: ResourceInfo[] = [];
      for (const row of rows.values()) {
        const rest = row.endpoints.get('');
        if (rest !== undefined) found.push(rest.info);
      }
      infos = found;
    }
    return infos;
  }

  return {
    find(group, version, resource, subresource) {
      for (const row of byResource.get(resource) ?? NO_ROWS)
        if (row.version === version && row.group === group) return row.endpoints.get(subresource);
      return undefined;
    },
    resources,
    builtIn(group) {
      builtIn ??= Map.groupBy(
        resources().filter(({ custom }) => custom === undefined),
        (info) => info.group,
      );
      return builtIn.get(group) ?? [];
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
      byResource.clear();
      builtIn = undefined;
      set(rests);
    },
    remove(group, version, resource) {
      const key = keyOf(group, version, resource);
      if (!drop(key)) return;
      rows.delete(key);
      changed();
    },
  };
}
