/**
 * Holds the table of all served resources by group, version, resource and subresource. The rows of custom resources are added
 * and removed at run time.
 */
import type { ResourceInfo } from '../../api/schema/schema.ts';
import type { ResourceCatalog, Rest } from '../model/rest.ts';

/** The catalog for the parts that add rows. Listeners are called once for each change. */
export interface MutableCatalog extends ResourceCatalog {
  /** Adds or replaces resources with their subresources, as one change. */
  set(rests: readonly Rest[]): void;
  /** Removes all rows and adds these, as one change. */
  replace(rests: readonly Rest[]): void;
  /** Removes a resource of one version with its subresources. */
  remove(group: string, version: string, resource: string): void;
  /** Returns the resources of a group that no definition defines. */
  builtIn(group: string): readonly ResourceInfo[];
  /** Sets the function behind `settled`, which waits until a custom resource is served as its newest definition says. */
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

/** The rows with their indexes. */
class Rows {
  /** The rows by `group/version/resource`. */
  readonly #all = new Map<string, Row>();
  /** The rows by resource alone, by which a request finds its row without joining the parts of a key. */
  readonly #byResource = new Map<string, Row[]>();
  #infos: readonly ResourceInfo[] | undefined;
  #builtIn: ReadonlyMap<string, readonly ResourceInfo[]> | undefined;

  find(group: string, version: string, resource: string): Row | undefined {
    for (const row of this.#byResource.get(resource) ?? NO_ROWS)
      if (row.version === version && row.group === group) return row;
    return undefined;
  }

  /** Adds rows, or replaces those of the same keys, which keep their places. */
  set(fresh: ReadonlyMap<string, Row>): void {
    for (const [key, row] of fresh) {
      this.#unindex(key);
      this.#all.set(key, row);
      const same = this.#byResource.get(row.resource);
      if (same === undefined) this.#byResource.set(row.resource, [row]);
      else same.push(row);
      if (!isCustom(row)) this.#builtIn = undefined;
    }
    this.#infos = undefined;
  }

  delete(key: string): boolean {
    this.#unindex(key);
    this.#infos = undefined;
    return this.#all.delete(key);
  }

  clear(): void {
    for (const key of [...this.#all.keys()]) this.delete(key);
  }

  infos(): readonly ResourceInfo[] {
    this.#infos ??= [...this.#all.values()].flatMap((row) => row.endpoints.get('')?.info ?? []);
    return this.#infos;
  }

  builtIn(group: string): readonly ResourceInfo[] {
    this.#builtIn ??= Map.groupBy(
      this.infos().filter(({ custom }) => custom === undefined),
      (info) => info.group,
    );
    return this.#builtIn.get(group) ?? [];
  }

  #unindex(key: string): void {
    const row = this.#all.get(key);
    if (row === undefined) return;
    const others = this.#byResource.get(row.resource)?.filter((one) => one !== row) ?? [];
    if (others.length === 0) this.#byResource.delete(row.resource);
    else this.#byResource.set(row.resource, others);
    if (!isCustom(row)) this.#builtIn = undefined;
  }
}

/** Creates a catalog, which is empty at first. `catchUp` is absent if no other server writes to the storage. */
export function createCatalog({ catchUp }: Pick<ResourceCatalog, 'catchUp'> = {}): MutableCatalog {
  const rows = new Rows();
  const listeners = new Set<() => void>();
  let settled: ResourceCatalog['settled'];

  const keyOf = (group: string, version: string, resource: string): string => `${group}/${version}/${resource}`;
  function changed(): void {
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
    rows.set(fresh);
    changed();
  }

  return {
    find: (group, version, resource, subresource) => rows.find(group, version, resource)?.endpoints.get(subresource),
    resources: () => rows.infos(),
    builtIn: (group) => rows.builtIn(group),
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
