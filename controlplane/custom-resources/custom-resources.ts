/**
 * Serves what CustomResourceDefinitions define: accepts their names, opens a watch cache for each, puts its versions into
 * the catalog, and deletes its objects before a definition goes away.
 *
 * One definition is worked on by one task at a time, always from its newest state; writes that meet a conflict are tried
 * again when the newer state is heard of. Started by main.ts before the server listens.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/machinery/client.ts';
import { type Clock, sleepOn } from '../../api/machinery/clock.ts';
import { customResourceDefinitions } from '../../api/machinery/resources.ts';
import { cloneJson, jsonEqual } from '../../api/meta/json-equality.ts';
import { apiVersionOf, type GroupVersionKind, type JsonObject, type KubeObject } from '../../api/meta/object.ts';
import { isConflict, isNotFound } from '../../api/meta/status-error.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import type { AdmissionChain } from '../admission/admission.ts';
import type { Storage } from '../storage/storage.ts';
import { openWatchCache, type WatchCache } from '../storage/watch-cache.ts';
import type { MutableCatalog } from '../registry/resource-catalog.ts';
import type { Conversion, Strategy } from '../registry/strategy.ts';
import { namedStatus, takenBy } from './accepted-names.ts';
import { fieldReaders, type FieldReaders } from './custom-strategy.ts';
import { applyDefaults } from './defaulting.ts';
import { CLEANUP_FINALIZER, type Definition, type DefinitionNames, isTrue, setCondition } from './definition.ts';
import type { JsonSchema } from './json-schema.ts';
import { leaseCache, type LeasedCache } from './leased-cache.ts';
import { servedVersions, type ServedSet, type ServingParts } from './served-versions.ts';

/** Where the newest definitions are read (a mirror of the registry's). */
export interface DefinitionSource {
  get(namespace: string, name: string): KubeObject | undefined;
  list(): readonly KubeObject[];
  subscribe(
    listener: (change: { readonly current: KubeObject | undefined; readonly previous: KubeObject | undefined }) => void,
  ): void;
}

export interface CustomResourcesOptions extends ServingParts {
  readonly catalog: MutableCatalog;
  readonly storage: Storage;
  readonly admission: AdmissionChain;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly definitions: DefinitionSource;
  readonly client: Client;
  readonly signal: AbortSignal;
}

interface Served {
  /** Of the definition; another one under the same name is another resource. */
  readonly uid: string;
  readonly cache: WatchCache;
  readonly lease: LeasedCache;
  readonly fields: string;
  /** What the rows were made from; its watches end when that changes. */
  readonly shape: unknown;
  readonly terminating: boolean;
  readonly sets: readonly ServedSet[];
}

const RETRY_MS = 1000;
const POLL_MS = 100;

export class CustomResources {
  readonly #options: CustomResourcesOptions;
  readonly #served = new Map<string, Served>();
  readonly #accepted = new Map<string, { readonly group: string; readonly names: DefinitionNames }>();
  /** Definitions that are being worked on; `again` when something came in between. */
  readonly #working = new Map<string, { again: boolean; readonly done: Promise<void> }>();
  readonly #cleaning = new Set<string>();
  readonly #byInfo = new WeakMap<ResourceInfo, ServedSet>();

  constructor(options: CustomResourcesOptions) {
    this.#options = options;
  }

  /** Resolves when everything that is defined already is served. */
  async start(): Promise<void> {
    const { definitions, signal } = this.#options;
    for (const object of definitions.list()) {
      const { metadata, spec, status } = object as Definition;
      if (status?.acceptedNames !== undefined) {
        this.#accepted.set(metadata.name ?? '', { group: spec.group, names: status.acceptedNames });
      }
    }
    definitions.subscribe(({ current, previous }) => this.#changed((current ?? previous)?.metadata.name ?? ''));
    signal.addEventListener('abort', () => this.#close(), { once: true });
    await Promise.all([...this.#working.values()].map(({ done }) => done));
  }

  strategyOf(info: ResourceInfo): Strategy | undefined {
    return this.#byInfo.get(info)?.strategy;
  }

  schemaOf(info: ResourceInfo): JsonSchema | undefined {
    return this.#byInfo.get(info)?.schema;
  }

  servedSet(info: ResourceInfo): ServedSet | undefined {
    return this.#byInfo.get(info);
  }

  /** Between versions of a custom resource, by way of the stored one; `undefined` for what is none. */
  convert(object: KubeObject, kind: GroupVersionKind): Promise<KubeObject> | undefined {
    for (const { sets } of this.#served.values()) {
      const [first] = sets;
      if (first?.info.group !== kind.group || first.info.kind !== kind.kind) continue;
      const setOf = (apiVersion: string | undefined): ServedSet | undefined =>
        sets.find(({ info }) => apiVersionOf(info) === apiVersion);
      return converted(object, setOf(object.apiVersion), setOf(apiVersionOf(kind)));
    }
    return undefined;
  }

  /** Sets what the schema of the object's version says of what it has not said; false for what is no custom resource. */
  applyDefaults(object: KubeObject): boolean {
    for (const { sets } of this.#served.values()) {
      const set = sets.find(({ info }) => apiVersionOf(info) === object.apiVersion && info.kind === object.kind);
      if (set === undefined) continue;
      applyDefaults(object as unknown as JsonObject, set.schema);
      return true;
    }
    return false;
  }

  #close(): void {
    for (const { cache } of this.#served.values()) cache.close();
    this.#served.clear();
  }

  #changed(name: string): void {
    const working = this.#working.get(name);
    if (working !== undefined) {
      working.again = true;
      return;
    }
    const done = Promise.withResolvers<void>();
    const entry = { again: false, done: done.promise };
    this.#working.set(name, entry);
    void this.#work(name, entry).then(done.resolve, done.resolve);
  }

  async #work(name: string, entry: { again: boolean }): Promise<void> {
    const { signal, logger, clock } = this.#options;
    try {
      do {
        entry.again = false;
        await this.#sync(name);
      } while (entry.again && !signal.aborted);
    } catch (error) {
      if (!signal.aborted) {
        if (!isConflict(error)) logger.warn({ err: error, definition: name }, 'A custom resource could not be served');
        clock.after(RETRY_MS, () => {
          if (!signal.aborted) this.#changed(name);
        });
      }
    } finally {
      this.#working.delete(name);
    }
  }

  async #sync(name: string): Promise<void> {
    const definition = this.#options.definitions.get('', name) as Definition | undefined;
    if (definition === undefined) {
      this.#forget(name);
      return;
    }
    if (await this.#accept(definition)) return;
    if (!isTrue(definition, 'Established')) return;
    await this.#serve(name, definition);
    const { deletionTimestamp, finalizers = [] } = definition.metadata;
    if (deletionTimestamp !== undefined && finalizers.includes(CLEANUP_FINALIZER)) this.#cleanUp(name, definition);
  }

  /** Writes which names it has; true if the status was written, so that a newer state will come. */
  async #accept(definition: Definition): Promise<boolean> {
    const { client, clock } = this.#options;
    const name = definition.metadata.name ?? '';
    const { group } = definition.spec;
    const others = [...this.#accepted].filter(([other, { group: theirs }]) => other !== name && theirs === group);
    const status = namedStatus(definition, takenBy(others.map(([, { names }]) => names)), clock.now());
    if (status.acceptedNames !== undefined) this.#accepted.set(name, { group, names: status.acceptedNames });
    if (jsonEqual(status, definition.status)) return false;
    if (!jsonEqual(status.acceptedNames, definition.status?.acceptedNames)) this.#wakeOthers(name, group);
    try {
      const written = await client.update(
        customResourceDefinitions,
        { ...structuredClone(definition), status },
        { subresource: 'status' },
      );
      // Serve at once: the mirror will show the same a little later.
      if (isTrue(written as Definition, 'Established')) await this.#serve(name, written as Definition);
    } catch (error) {
      if (!isNotFound(error) && !isConflict(error)) throw error;
      if (isConflict(error) && this.#options.definitions.get('', name) === definition) throw error;
    }
    return true;
  }

  /** Names may have become free for those that did not get theirs. */
  #wakeOthers(name: string, group: string): void {
    for (const object of this.#options.definitions.list()) {
      const other = object as Definition;
      const otherName = other.metadata.name ?? '';
      if (otherName !== name && other.spec.group === group && !isTrue(other, 'NamesAccepted')) this.#changed(otherName);
    }
  }

  async #serve(name: string, definition: Definition): Promise<void> {
    const { spec, metadata, status } = definition;
    const uid = metadata.uid ?? '';
    const shape = [spec, status?.acceptedNames];
    const terminating = metadata.deletionTimestamp !== undefined;
    let served = this.#served.get(name);
    const sameShape = served?.uid === uid && jsonEqual(served.shape, shape);
    if (sameShape && served?.terminating === terminating) return;
    if (served !== undefined && served.uid !== uid) {
      this.#forget(name);
      served = undefined;
    }
    const readers = readersOf(definition);
    const fields = Object.keys(readers).sort().join();
    const kept = served?.fields === fields ? served.cache : undefined;
    const cache = kept ?? (await this.#openCache(definition, readers));
    const lease = served !== undefined && sameShape ? served.lease : leaseCache(cache);
    const { storage, admission, clock, catalog } = this.#options;
    const base = { builtIn: false, cache: lease.cache, storage, admission, clock };
    const sets = servedVersions(definition, base, this.#options);
    for (const set of sets) this.#byInfo.set(set.info, set);
    this.#served.set(name, { uid, cache, lease, fields, shape, terminating, sets });
    const names = new Set(sets.map(({ info }) => info.version));
    for (const { info } of served?.sets ?? []) {
      if (!names.has(info.version)) catalog.remove(info.group, info.version, info.resource);
    }
    catalog.set(sets.flatMap(({ rests }) => rests));
    // Who watches by what was served before lists again.
    if (served !== undefined && served.lease !== lease) served.lease.end();
    if (kept === undefined) served?.cache.close();
  }

  #openCache({ spec }: Definition, readers: FieldReaders): Promise<WatchCache> {
    const { storage, clock, logger } = this.#options;
    const all = Object.entries(readers);
    return openWatchCache({
      storage,
      resource: {
        group: spec.group,
        resource: spec.names.plural,
        namespaced: spec.scope === 'Namespaced',
        fields: (object) => Object.fromEntries(all.map(([field, read]) => [field, read(object)])),
      },
      clock,
      logger,
    });
  }

  #forget(name: string): void {
    const group = this.#accepted.get(name)?.group;
    this.#accepted.delete(name);
    const served = this.#served.get(name);
    if (served !== undefined) {
      this.#served.delete(name);
      for (const { info } of served.sets) this.#options.catalog.remove(info.group, info.version, info.resource);
      served.cache.close();
    }
    if (group !== undefined) this.#wakeOthers(name, group);
  }

  #cleanUp(name: string, definition: Definition): void {
    if (this.#cleaning.has(name)) return;
    this.#cleaning.add(name);
    const { signal, logger, clock } = this.#options;
    this.#deleteObjects(name, definition)
      .catch((error: unknown) => {
        if (signal.aborted || isNotFound(error)) return;
        logger.warn({ err: error, definition: name }, 'The objects of a custom resource could not be deleted');
        clock.after(RETRY_MS, () => this.#changed(name));
      })
      .finally(() => this.#cleaning.delete(name));
  }

  /** All objects, then the finalizer, then the definition. */
  async #deleteObjects(name: string, definition: Definition): Promise<void> {
    const { client, clock, signal } = this.#options;
    const served = this.#served.get(name);
    const info = served?.sets[0]?.info;
    await this.#condition(name, 'True', 'InstanceDeletionInProgress', 'CustomResource deletion is in progress');
    if (served !== undefined && info !== undefined) {
      const target = {
        group: info.group,
        version: info.version,
        resource: info.resource,
        kind: info.kind,
        namespaced: info.namespaced,
      };
      await client.deleteCollection(target, { signal });
      while (served.cache.count() > 0) await sleepOn(clock, POLL_MS, signal);
    }
    const current = (await client.get(customResourceDefinitions, '', name)) as Definition;
    if (current.metadata.uid !== definition.metadata.uid) return;
    const finalizers = (current.metadata.finalizers ?? []).filter((one) => one !== CLEANUP_FINALIZER);
    await client.update(customResourceDefinitions, { ...current, metadata: { ...current.metadata, finalizers } });
    await client.delete(customResourceDefinitions, '', name, {
      preconditions: { uid: definition.metadata.uid ?? '' },
    });
  }

  async #condition(name: string, status: 'True' | 'False', reason: string, message: string): Promise<void> {
    const { client, clock } = this.#options;
    for (;;) {
      const current = (await client.get(customResourceDefinitions, '', name)) as Definition;
      setCondition((current.status ??= {}), { type: 'Terminating', status, reason, message }, clock.now());
      try {
        await client.update(customResourceDefinitions, current, { subresource: 'status' });
        return;
      } catch (error) {
        if (!isConflict(error)) throw error;
      }
    }
  }
}

async function converted(
  object: KubeObject,
  from: ServedSet | undefined,
  to: ServedSet | undefined,
): Promise<KubeObject> {
  const through = async (conversion: Conversion, one: KubeObject, way: 'stored' | 'served'): Promise<KubeObject> => {
    if (conversion.convertAll !== undefined) return (await conversion.convertAll([one], way))[0] ?? one;
    return way === 'stored' ? conversion.toStored(cloneJson(one)) : conversion.fromStored(cloneJson(one));
  };
  // A version that is not served is the stored one.
  const stored = from === undefined ? object : await through(from.conversion, object, 'stored');
  return to === undefined ? stored : through(to.conversion, stored, 'served');
}

/** The selectable fields of all versions. */
function readersOf(definition: Definition): FieldReaders {
  return fieldReaders(definition.spec.versions.flatMap((version) => version.selectableFields ?? []));
}
