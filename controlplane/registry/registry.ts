/**
 * Builds the registry: a generic store for every built-in resource, its endpoints for each served version, and the
 * catalog that the server asks. What is stored is opened once; everything else is made from the table of resources and
 * from the rows of `kinds.ts`.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { apiVersionOf, type GroupVersionKind, type JsonObject, type KubeObject } from '../../api/meta/object.ts';
import { completeStruct } from '../../api/schema/decode.ts';
import { builtinResources } from '../../api/schema/resources.ts';
import type { ResourceInfo, Schema, StructType } from '../../api/schema/schema.ts';
import type { AdmissionChain } from '../admission/admission.ts';
import type { Storage } from '../storage/storage.ts';
import { openWatchCache, type WatchCache } from '../storage/watch-cache.ts';
import type { FieldManagement } from './field-management.ts';
import { genericStrategy, statusOnly } from './generic-strategy.ts';
import { kindRows, type KindOptions } from './kinds.ts';
import { componentStatusColumns, createComponentStatusRest } from './kinds/core/component-statuses.ts';
import { createConnectRest } from './kinds/core/connections.ts';
import { createBindingRest, createEvictionRest } from './kinds/core/pod-actions.ts';
import { builtInReader, createDecoder, type Decoder } from './object-decoding.ts';
import { createCatalog, type MutableCatalog } from './resource-catalog.ts';
import { createResourceRest, createSubresourceRest } from './resource-rest.ts';
import type { ServedVersion } from './version-edge.ts';
import type { Rest } from '../model/rest.ts';
import { createScaleRest } from './scale-rest.ts';
import type { Store } from './store.ts';
import type { Conversion, KindRow, Strategy, TableColumns } from './strategy.ts';

export interface RegistryOptions extends Omit<KindOptions, 'stores'> {
  /** Opened with `stamp: stampRevision`. */
  readonly storage: Storage;
  readonly schema: Schema;
  readonly admission: AdmissionChain;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Managed fields of a kind; `struct` is that of the served version. */
  readonly fieldManagement: (expected: ServedVersion['expected'], decoder: Decoder) => FieldManagement;
  /**
   * Endpoints that other parts implement: reviews, tokens, … Called once, with the stores that they read and write.
   * They replace what the registry has under the same path.
   */
  readonly extend?: (stores: Stores) => readonly Rest[];
  /** `--runtime-config`; without it everything of the table is served. */
  readonly serves?: (info: ResourceInfo) => boolean;
  /** Deep-freezes cached objects (tests). */
  readonly freeze?: boolean;
}

/** The stores by their group (`''` for core) and resource. */
export interface Stores {
  get(group: string, resource: string): Store;
  /** `undefined`: none is built in. */
  find(group: string, resource: string): Store | undefined;
}

export interface Registry {
  readonly catalog: MutableCatalog;
  readonly stores: Stores;
  strategyOf(info: ResourceInfo): Strategy | undefined;
  /** Table columns of what a path serves; cells are those of the stored form, whatever the version. */
  columnsOf(info: ResourceInfo): TableColumns | undefined;
  /** The object in another version of its kind; it stays as it is. */
  convert(object: KubeObject, kind: GroupVersionKind): KubeObject;
  /** Sets what an object of a built-in kind has not said, in the version that it names. */
  applyDefaults(object: KubeObject): void;
  close(): void;
}

/** Where a resource is kept: events of both groups are the same objects. */
function storedUnder(info: ResourceInfo): { readonly group: string; readonly resource: string } {
  return info.group === 'events.k8s.io'
    ? { group: '', resource: info.resource }
    : { group: info.group, resource: info.resource };
}

const keyOf = (group: string, resource: string): string => `${group}/${resource}`;

function storeOf(stores: ReadonlyMap<string, Store>, info: ResourceInfo): Store | undefined {
  const { group, resource } = storedUnder(info);
  return stores.get(keyOf(group, resource));
}

function columnsFinder(stores: ReadonlyMap<string, Store>, rows: ReadonlyMap<string, KindRow>): Registry['columnsOf'] {
  const found = new Map<ResourceInfo, TableColumns | undefined>();
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
    if (!found.has(info)) found.set(info, find(info));
    return found.get(info);
  };
}

/** Resolves when every cache holds what is stored. */
export async function createRegistry(options: RegistryOptions): Promise<Registry> {
  const stores = new Map<string, Store>();
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
      const strategy = printing(row?.strategy ?? genericStrategy(struct), struct);
      const cache = await openCache(options, info, strategy);
      caches.push(cache);
      const { storage, admission, clock } = options;
      stores.set(keyOf(info.group, info.resource), {
        info,
        strategy,
        builtIn: info.group !== 'apiextensions.k8s.io',
        cache,
        storage,
        admission,
        clock,
      });
    }),
  );
  const decoder = createDecoder(options.schema);
  const catalog = createCatalog();
  const extended = options.extend?.(access) ?? [];
  const actions = actionRests(options, access, decoder);
  const rests = inOrder([...builtInRests(options, stores, rows, decoder), ...actions, ...extended]);
  catalog.set(rests.filter(({ info }) => serves(info)));
  return {
    catalog,
    stores: access,
    strategyOf: (info) => storeOf(stores, info)?.strategy,
    columnsOf: columnsFinder(stores, rows),
    convert: converter(stores, rows),
    applyDefaults: defaulter(options.schema, stores, rows),
    close() {
      for (const cache of caches) cache.close();
    },
  };
}

/** What other kinds and the server read, whether clients are served it or not. */
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

/**
 * The stored version of each: the first of its group in the order of discovery, which is the most stable one. Kinds of
 * which no version is served are left out.
 */
function storedResources(serves: (info: ResourceInfo) => boolean): ResourceInfo[] {
  const found = new Map<string, ResourceInfo>();
  const wanted = new Set(ALWAYS_STORED);
  for (const info of builtinResources()) {
    const { group, resource } = storedUnder(info);
    if (serves(info)) wanted.add(keyOf(group, resource));
  }
  for (const info of builtinResources()) {
    if (!info.verbs.includes('list') || info.resource === 'componentstatuses' || info.group === 'events.k8s.io')
      continue;
    const key = keyOf(info.group, info.resource);
    if (wanted.has(key) && !found.has(key)) found.set(key, info);
  }
  return [...found.values()];
}

/** Strategies and admission take parts away and put parts in: what the type always prints is put back before it is stored. */
function printing(strategy: Strategy, struct: StructType): Strategy {
  return {
    ...strategy,
    canonicalise(object) {
      strategy.canonicalise?.(object);
      completeStruct(struct, object as JsonObject);
    },
  };
}

function structOf(schema: Schema, info: ResourceInfo): StructType {
  const struct = schema.kind(info.group, info.version, info.kind);
  if (struct === undefined) throw new Error(`the schema lacks ${info.kind} of ${info.group}/${info.version}`);
  return struct;
}

function openCache(options: RegistryOptions, info: ResourceInfo, strategy: Strategy): Promise<WatchCache> {
  const fields = fieldReader(strategy);
  return openWatchCache({
    storage: options.storage,
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

/** Endpoints of the table's rows that are stored. */
function builtInRests(
  options: RegistryOptions,
  stores: ReadonlyMap<string, Store>,
  rows: ReadonlyMap<string, KindRow>,
  decoder: Decoder,
): Rest[] {
  const rests: Rest[] = [];
  for (const info of builtinResources()) {
    const { group, resource } = storedUnder(info);
    const store = stores.get(keyOf(group, resource));
    if (store === undefined) continue;
    const expected = {
      group: info.group,
      version: info.version,
      kind: info.kind,
      struct: structOf(options.schema, info),
      reader: builtInReader,
      applyDefaults: store.strategy.applyDefaults?.bind(store.strategy),
    };
    const conversion = conversionOf(store, info, rows.get(keyOf(group, resource)));
    const version: ServedVersion = {
      store,
      info,
      expected: conversion === undefined ? expected : { ...expected, applyDefaults: conversion.applyDefaults },
      conversion,
      decoder,
      fieldManagement: options.fieldManagement(expected, decoder),
    };
    rests.push(createResourceRest(version), ...subresourceRests(version, options));
  }
  return rests;
}

/** Between served versions of one kind, by way of the stored one. */
function converter(stores: ReadonlyMap<string, Store>, rows: ReadonlyMap<string, KindRow>): Registry['convert'] {
  const byKind = new Map(
    builtinResources().flatMap((info) => {
      const { group, resource } = storedUnder(info);
      const store = stores.get(keyOf(group, resource));
      if (store === undefined) return [];
      const conversion = conversionOf(store, info, rows.get(keyOf(group, resource)));
      return [[`${info.group === '' ? '' : `${info.group}/`}${info.version} ${info.kind}`, conversion] as const];
    }),
  );
  return (object, kind) => {
    const apiVersion = apiVersionOf(kind);
    const copy = structuredClone(object);
    const stored = byKind.get(`${object.apiVersion ?? ''} ${object.kind ?? ''}`)?.toStored(copy) ?? copy;
    const served = byKind.get(`${apiVersion} ${kind.kind}`)?.fromStored(stored) ?? stored;
    return { ...served, apiVersion, kind: kind.kind };
  };
}

function defaulter(
  schema: Schema,
  stores: ReadonlyMap<string, Store>,
  rows: ReadonlyMap<string, KindRow>,
): Registry['applyDefaults'] {
  const byKind = new Map(
    builtinResources().flatMap((info) => {
      const { group, resource } = storedUnder(info);
      const store = stores.get(keyOf(group, resource));
      if (store === undefined) return [];
      const conversion = conversionOf(store, info, rows.get(keyOf(group, resource)));
      const own =
        conversion === undefined ? store.strategy.applyDefaults?.bind(store.strategy) : conversion.applyDefaults;
      return [[`${apiVersionOf(info)} ${info.kind}`, { struct: structOf(schema, info), own }] as const];
    }),
  );
  return (object) => {
    const found = byKind.get(`${object.apiVersion ?? ''} ${object.kind ?? ''}`);
    if (found === undefined) return;
    builtInReader.applyDefaults(object, found.struct);
    found.own?.(object);
  };
}

function conversionOf(store: Store, served: ResourceInfo, row: KindRow | undefined): Conversion | undefined {
  const stored = store.info;
  if (stored.group === served.group && stored.version === served.version) return undefined;
  const own = row?.conversions?.[served.group === stored.group ? served.version : `${served.group}/${served.version}`];
  return own ?? renamed(stored, served, store.strategy);
}

/** Versions that differ in nothing but their name. */
function renamed(stored: ResourceInfo, served: ResourceInfo, strategy: Strategy): Conversion {
  const named = (info: ResourceInfo) => (object: KubeObject) => {
    object.apiVersion = info.group === '' ? info.version : `${info.group}/${info.version}`;
    return object;
  };
  const conversion = { toStored: named(stored), fromStored: named(served) };
  const { applyDefaults } = strategy;
  return applyDefaults === undefined ? conversion : { ...conversion, applyDefaults: applyDefaults.bind(strategy) };
}

function subresourceRests(version: ServedVersion, options: RegistryOptions): Rest[] {
  const { strategy } = version.store;
  const rests: Rest[] = [];
  for (const subresource of version.info.subresources) {
    const own = strategy.subresources?.[subresource.name];
    if (subresource.name === 'status')
      rests.push(createSubresourceRest(version, subresource, strategy.status ?? statusOnly));
    else if (own !== undefined) rests.push(createSubresourceRest(version, subresource, own));
    else if (subresource.name === 'scale') rests.push(createScaleRest(version, subresource, options.schema));
  }
  return rests;
}

/** What is done through pods, nodes and services without writing them as a whole. */
function actionRests(options: RegistryOptions, stores: Stores, decoder: Decoder): Rest[] {
  const pods = stores.get('', 'pods');
  const parts = { pods, budgets: stores.get('policy', 'poddisruptionbudgets'), schema: options.schema, decoder };
  const connectStores = {
    pods,
    nodes: stores.get('', 'nodes'),
    services: stores.get('', 'services'),
    endpointSlices: stores.get('discovery.k8s.io', 'endpointslices'),
  };
  const rests: Rest[] = [];
  for (const info of builtinResources()) {
    if (info.group !== '') continue;
    if (info.resource === 'bindings') rests.push(createBindingRest(parts, info, undefined));
    if (info.resource === 'componentstatuses') rests.push(createComponentStatusRest(info));
    for (const subresource of info.subresources) {
      if (info.resource === 'pods' && subresource.name === 'binding')
        rests.push(createBindingRest(parts, info, subresource));
      else if (info.resource === 'pods' && subresource.name === 'eviction')
        rests.push(createEvictionRest(parts, info, subresource));
      else {
        const connect = createConnectRest(connectStores, info, subresource);
        if (connect !== undefined) rests.push(connect);
      }
    }
  }
  return rests;
}

/** In the order of the table; of two for one path the later one counts. */
function inOrder(rests: readonly Rest[]): Rest[] {
  const found = new Map<string, Rest>();
  const keyOfRest = ({ info, subresource }: Rest): string =>
    `${info.group}/${info.version}/${info.resource}/${subresource?.name ?? ''}`;
  for (const rest of rests) found.set(keyOfRest(rest), rest);
  const order = new Map(
    builtinResources().map((info, index) => [`${info.group}/${info.version}/${info.resource}`, index]),
  );
  const indexOf = ({ info }: Rest): number => order.get(`${info.group}/${info.version}/${info.resource}`) ?? order.size;
  return [...found.values()].sort((a, b) => indexOf(a) - indexOf(b));
}
