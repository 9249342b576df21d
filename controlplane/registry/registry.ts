/**
 * Opens the registry: a watch cache and a strategy for every built-in resource, and the catalog that the server reads.
 *
 * An open registry serves only reads. `serveRegistry` adds the writes, because writes need the admission plugins, and these
 * read the registry.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { apiVersionOf, type GroupVersionKind, type JsonObject, type KubeObject } from '../../api/meta/object.ts';
import { completeStruct } from '../../api/schema/complete.ts';
import { builtinResources, isStored } from '../../api/schema/resources.ts';
import type { ResourceInfo, Schema, StructType } from '../../api/schema/schema.ts';
import type { Storage } from '../storage/storage.ts';
import { prefixOf, storageOf, type StorageOverride } from '../storage/storages.ts';
import { openWatchCache, type WatchCache } from '../storage/watch-cache.ts';
import { genericStrategy } from './generic-strategy.ts';
import { kindRows } from './kinds.ts';
import type { KindOptions } from './kind-options.ts';
import { componentStatusColumns } from './kinds/core/component-statuses.ts';
import { builtInReader } from './object-decoding.ts';
import { createCatalog, type MutableCatalog } from './resource-catalog.ts';
import { createReadingRest } from './resource-rest.ts';
import { catchUp, type StoredResource } from './store.ts';
import type { Conversion, KindRow, Strategy, TableColumns } from './strategy.ts';

interface RegistryOptions extends Omit<KindOptions, 'stores'> {
  /** The storage, and those of single resources. They must be opened with `stamp: stampRevision`. */
  readonly storage: Storage;
  readonly overrides?: readonly StorageOverride[];
  readonly schema: Schema;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Evaluates `--runtime-config`. Without it, all resources of the table are served. */
  readonly serves?: (info: ResourceInfo) => boolean;
  /** Freezes cached objects deeply. Tests use it. */
  readonly freeze?: boolean;
}

/** The stores by group (`''` for core) and resource. */
export interface Stores {
  /** Throws an `Error` if the resource has no store. */
  get(group: string, resource: string): StoredResource;
  /** Returns `undefined` if the resource has no store. */
  find(group: string, resource: string): StoredResource | undefined;
}

/** The stores and rows of built-in resources. */
export interface Registry {
  readonly catalog: MutableCatalog;
  readonly stores: Stores;
  /**
   * Returns the store of a built-in resource in any version. `undefined` if the resource is not stored (a review), or if no
   * version is served and no part of the server reads the resource.
   */
  storeOf(info: ResourceInfo): StoredResource | undefined;
  /** Returns the conversion of this version. `undefined` if it is the stored version or the resource has no store. */
  conversionOf(info: ResourceInfo): Conversion | undefined;
  /** Whether `--runtime-config` lets the API serve the resource. */
  serves(info: ResourceInfo): boolean;
  /** Returns the strategy of a built-in resource. `undefined` if the resource has no store. */
  strategyOf(info: ResourceInfo): Strategy | undefined;
  /**
   * Returns the Table columns of a resource in any version. The cells are computed from the stored form. `undefined` if the
   * resource has no columns of its own.
   */
  columnsOf(info: ResourceInfo): TableColumns | undefined;
  /**
   * Converts the object to another version of its kind. The object is not modified. If its kind is not stored, only
   * `apiVersion` and `kind` change.
   */
  convert(object: KubeObject, kind: GroupVersionKind): KubeObject;
  /** Sets the defaults of an object of a kind that has a store, in the version of the object. Does nothing for other kinds. */
  applyDefaults(object: KubeObject): void;
  close(): void;
}

type GroupResource = Pick<ResourceInfo, 'group' | 'resource'>;

/** Returns the group and resource under which a resource is stored. The events of both groups are the same objects. */
function storedUnder(info: GroupResource): GroupResource {
  return info.group === 'events.k8s.io'
    ? { group: '', resource: info.resource }
    : { group: info.group, resource: info.resource };
}

const keyOf = (group: string, resource: string): string => `${group}/${resource}`;

function storeOf(stores: ReadonlyMap<string, StoredResource>, info: ResourceInfo): StoredResource | undefined {
  const { group, resource } = storedUnder(info);
  return stores.get(keyOf(group, resource));
}

function columnsFinder(
  stores: ReadonlyMap<string, StoredResource>,
  rows: ReadonlyMap<string, KindRow>,
): Registry['columnsOf'] {
  const byResource = new Map<ResourceInfo, TableColumns | undefined>();
  const find = (info: ResourceInfo): TableColumns | undefined => {
    if (info.group === '' && info.resource === 'componentstatuses') return componentStatusColumns;
    const store = storeOf(stores, info);
    const columns = store?.strategy.columns;
    if (store === undefined || columns === undefined) return undefined;
    const { group, resource } = storedUnder(info);
    const conversion = conversionOf(store, info, rows.get(keyOf(group, resource)));
    if (conversion === undefined) return columns;
    const stored = (object: KubeObject): KubeObject => conversion.toStored(structuredClone(object));
    return {
      ...columns,
      cells: (object) => columns.cells(stored(object)),
      conditions: (object) => columns.conditions?.(stored(object)) ?? [],
    };
  };
  return (info) => {
    if (!byResource.has(info)) byResource.set(info, find(info));
    return byResource.get(info);
  };
}

/**
 * Opens the stores of all built-in resources. Resolves when every cache is filled. The catalog serves only reads until
 * `serveRegistry` adds the writes.
 */
export async function openRegistry(options: RegistryOptions): Promise<Registry> {
  const stores = new Map<string, StoredResource>();
  const access: Stores = {
    find: (group, resource) => stores.get(keyOf(group, resource)),
    get(group, resource) {
      const store = stores.get(keyOf(group, resource));
      if (store === undefined) throw new Error(`no store of ${resource} in group "${group}"`);
      return store;
    },
  };
  const rows = new Map<string, KindRow>();
  for (const row of kindRows({ ...options, stores: access })) rows.set(keyOf(row.group, row.resource), row);
  const caches: WatchCache[] = [];
  const serves = options.serves ?? (() => true);
  await Promise.all(
    storedResources(serves).map(async (info) => {
      const row = rows.get(keyOf(info.group, info.resource));
      const struct = structOf(options.schema, info);
      const strategy = completing(row?.strategy ?? genericStrategy(struct), struct);
      const storage = storageOfResource(options, info);
      const cache = await openCache(options, storage, info, strategy);
      caches.push(cache);
      const { clock } = options;
      stores.set(keyOf(info.group, info.resource), {
        info,
        strategy,
        builtIn: info.group !== 'apiextensions.k8s.io',
        cache,
        storage,
        clock,
      });
    }),
  );
  const conversions = (info: ResourceInfo): Conversion | undefined => {
    const store = storeOf(stores, info);
    const { group, resource } = storedUnder(info);
    return store === undefined ? undefined : conversionOf(store, info, rows.get(keyOf(group, resource)));
  };
  const catalog = createCatalog({ catchUp: catchUpOf(options) });
  catalog.set(
    builtinResources().flatMap((info) => {
      const store = storeOf(stores, info);
      if (store === undefined || !serves(info)) return [];
      return [createReadingRest({ store, info, conversion: conversions(info) })];
    }),
  );
  return {
    catalog,
    stores: access,
    storeOf: (info) => storeOf(stores, info),
    conversionOf: conversions,
    serves,
    strategyOf: (info) => storeOf(stores, info)?.strategy,
    columnsOf: columnsFinder(stores, rows),
    convert: converter(stores, rows),
    applyDefaults: defaulter(options.schema, stores, rows),
    close() {
      for (const cache of caches) cache.close();
    },
  };
}

function storageOfResource({ storage, overrides = [] }: RegistryOptions, stored: GroupResource): Storage {
  return storageOf({ storage, overrides }, prefixOf(stored.group, stored.resource));
}

function catchUpOf(options: RegistryOptions): MutableCatalog['catchUp'] {
  const { storage } = options;
  if (storage.catchUp === undefined) return undefined;
  return async (group, resource) => {
    const resourceStorage = storageOfResource(options, storedUnder({ group, resource }));
    await (resourceStorage === storage ? catchUp(storage) : Promise.all([catchUp(storage), catchUp(resourceStorage)]));
  };
}

/** Resources that other kinds and the server read, whether or not they are served to clients. */
const ALWAYS_STORED: ReadonlySet<string> = new Set([
  '/namespaces',
  '/nodes',
  '/pods',
  '/services',
  'discovery.k8s.io/endpointslices',
  'networking.k8s.io/ipaddresses',
  'networking.k8s.io/servicecidrs',
  'policy/poddisruptionbudgets',
]);

/** Returns the stored version, the first in the order of discovery, of each resource that is served or in `ALWAYS_STORED`. */
function storedResources(serves: (info: ResourceInfo) => boolean): ResourceInfo[] {
  const stored = new Map<string, ResourceInfo>();
  const included = new Set(ALWAYS_STORED);
  for (const info of builtinResources()) {
    const { group, resource } = storedUnder(info);
    if (serves(info)) included.add(keyOf(group, resource));
  }
  for (const info of builtinResources()) {
    if (!isStored(info)) continue;
    const key = keyOf(info.group, info.resource);
    if (included.has(key) && !stored.has(key)) stored.set(key, info);
  }
  return [...stored.values()];
}

/**
 * Returns the strategy with a `canonicalise` that also adds the fields that the type always serializes, because strategies and
 * admission may have removed them.
 */
function completing(strategy: Strategy, struct: StructType): Strategy {
  return {
    ...strategy,
    canonicalise(object) {
      strategy.canonicalise?.(object);
      completeStruct(struct, object as JsonObject);
    },
  };
}

/** Returns the type of a built-in resource. Throws if the schema lacks it, which is a fault of the program. */
export function structOf(schema: Schema, info: ResourceInfo): StructType {
  const struct = schema.kind(info.group, info.version, info.kind);
  if (struct === undefined) throw new Error(`the schema lacks ${info.kind} of ${info.group}/${info.version}`);
  return struct;
}

function openCache(
  options: RegistryOptions,
  storage: Storage,
  info: ResourceInfo,
  strategy: Strategy,
): Promise<WatchCache> {
  const fields = fieldReader(strategy);
  return openWatchCache({
    storage,
    resource: {
      group: info.group === '' ? 'core' : info.group,
      resource: info.resource,
      namespaced: info.namespaced,
      ...(fields === undefined ? {} : { fields }),
      ...(strategy.indexedFields === undefined ? {} : { indexedFields: strategy.indexedFields }),
    },
    clock: options.clock,
    logger: options.logger,
    ...(options.freeze === undefined ? {} : { freeze: options.freeze }),
  });
}

function fieldReader(strategy: Strategy): ((object: KubeObject) => Readonly<Record<string, string>>) | undefined {
  const { selectableFields } = strategy;
  if (selectableFields === undefined) return undefined;
  const readers = Object.entries(selectableFields);
  return (object) => Object.fromEntries(readers.map(([field, read]) => [field, read(object)]));
}

const kindKey = (apiVersion: string, kind: string): string => `${apiVersion} ${kind}`;

/** Returns each version of the built-in kinds that are stored, with its `kindKey` and its conversion to the stored version. */
function storedKinds(stores: ReadonlyMap<string, StoredResource>, rows: ReadonlyMap<string, KindRow>) {
  return builtinResources().flatMap((info) => {
    const { group, resource } = storedUnder(info);
    const store = stores.get(keyOf(group, resource));
    if (store === undefined) return [];
    const conversion = conversionOf(store, info, rows.get(keyOf(group, resource)));
    return [{ key: kindKey(apiVersionOf(info), info.kind), info, store, conversion }];
  });
}

/** Converts between served versions of one kind, via the stored version. */
function converter(
  stores: ReadonlyMap<string, StoredResource>,
  rows: ReadonlyMap<string, KindRow>,
): Registry['convert'] {
  const conversions = new Map(storedKinds(stores, rows).map(({ key, conversion }) => [key, conversion]));
  return (object, kind) => {
    const apiVersion = apiVersionOf(kind);
    const copy = structuredClone(object);
    const stored = conversions.get(kindKey(object.apiVersion ?? '', object.kind ?? ''))?.toStored(copy) ?? copy;
    const served = conversions.get(kindKey(apiVersion, kind.kind))?.fromStored(stored) ?? stored;
    return { ...served, apiVersion, kind: kind.kind };
  };
}

function defaulter(
  schema: Schema,
  stores: ReadonlyMap<string, StoredResource>,
  rows: ReadonlyMap<string, KindRow>,
): Registry['applyDefaults'] {
  const byKind = new Map(
    storedKinds(stores, rows).map(({ key, info, store, conversion }) => {
      const applyKindDefaults =
        conversion === undefined ? store.strategy.applyDefaults?.bind(store.strategy) : conversion.applyDefaults;
      return [key, { struct: structOf(schema, info), applyKindDefaults }] as const;
    }),
  );
  return (object) => {
    const defaults = byKind.get(kindKey(object.apiVersion ?? '', object.kind ?? ''));
    if (defaults === undefined) return;
    builtInReader.applyDefaults(object, defaults.struct);
    defaults.applyKindDefaults?.(object);
  };
}

function conversionOf(store: StoredResource, served: ResourceInfo, row: KindRow | undefined): Conversion | undefined {
  const stored = store.info;
  if (stored.group === served.group && stored.version === served.version) return undefined;
  const version = served.group === stored.group ? served.version : `${served.group}/${served.version}`;
  return row?.conversions?.[version] ?? renamed(stored, served, store.strategy);
}

/** Returns the conversion between versions that differ only in their name. */
function renamed(stored: ResourceInfo, served: ResourceInfo, strategy: Strategy): Conversion {
  const named = (info: ResourceInfo) => (object: KubeObject) => {
    object.apiVersion = apiVersionOf(info);
    return object;
  };
  const conversion = { toStored: named(stored), fromStored: named(served) };
  const { applyDefaults } = strategy;
  return applyDefaults === undefined ? conversion : { ...conversion, applyDefaults: applyDefaults.bind(strategy) };
}
