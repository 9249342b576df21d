/**
 * Serves the resources that CustomResourceDefinitions define: accepts their names, opens a watch cache for each, adds its
 * versions to the catalog, and deletes its objects before the definition is deleted.
 *
 * One worker at a time handles a definition, always from its newest state.
 */
import { stringifyJson } from '../../../api/codec/json.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Client } from '../../../api/client/client.ts';
import { type Clock, pause, sleepOn } from '../../../api/machinery/clock.ts';
import { customResourceDefinitions } from '../../../api/client/resources.ts';
import { runWorkers, WorkQueue } from '../../../api/machinery/work-queue.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { isConflict, isNotFound } from '../../../api/meta/status-error.ts';
import type { AdmissionChain } from '../../security/admission/admission.ts';
import type { Storage } from '../../storage/storage.ts';
import { openWatchCache, type WatchCache } from '../../storage/watch-cache.ts';
import type { MutableCatalog } from '../resource-catalog.ts';
import { builtInNames, namedStatus, takenBy, takesBuiltIn } from './accepted-names.ts';
import { fieldReaders, type FieldReaders } from './custom-strategy.ts';
import { CLEANUP_FINALIZER, type Definition, isTrue, setCondition } from '../kinds/apiextensions/definition.ts';
import { leaseCache, type LeasedCache } from './leased-cache.ts';
import { NameIndex } from './name-index.ts';
import type { ServedDefinitions } from './served-definitions.ts';
import { servedVersions, versionSchemas, type ServedSet, type ServingParts } from './served-versions.ts';
import { storedReader } from './version-conversion.ts';

/** The part of an informer of definitions that is used here. */
interface DefinitionInformer {
  get(namespace: string, name: string): KubeObject | undefined;
  list(): readonly KubeObject[];
  subscribe(
    listener: (change: { readonly current: KubeObject | undefined; readonly previous: KubeObject | undefined }) => void,
  ): void;
}

/** The signal stops the queue and closes the caches. */
export interface CustomResourcesOptions extends ServingParts {
  readonly catalog: MutableCatalog;
  /** Updated whenever the set of served resources changes. */
  readonly served: ServedDefinitions;
  readonly storage: Storage;
  readonly admission: AdmissionChain;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly definitions: DefinitionInformer;
  readonly client: Client;
  readonly signal: AbortSignal;
}

interface Served {
  /** The UID of the definition: another definition of the same name is another resource. */
  readonly uid: string;
  readonly cache: WatchCache;
  readonly lease: LeasedCache;
  /** The value of `fieldsKey`. When it changes, the watch cache is opened again. */
  readonly fields: string;
  /** The spec and the accepted names. When they change, watches end, so that clients list the objects in their new form. */
  readonly shape: unknown;
  readonly terminating: boolean;
  readonly sets: readonly ServedSet[];
}

const RETRY_MS = 1000;
const MAX_RETRY_MS = 30_000;
/** The number of definitions that are processed at a time. Writes of several definitions share a commit. */
const WORKERS = 32;
const POLL_MS = 100;
const MAX_SETTLING_MS = 5000;
/** How long another server may still be writing an object that it accepted before it saw the deletion of the definition. */
const OTHERS_WRITE_MS = 2000;

/** Follows the definitions from `start` on, until the signal of the options aborts. */
export class CustomResources {
  readonly #options: CustomResourcesOptions;
  readonly #served = new Map<string, Served>();
  readonly #names = new NameIndex();
  /** The queue of the names of definitions. */
  readonly #queue: WorkQueue;
  readonly #cleaning = new Set<string>();
  /** The definitions whose newest state has not been processed yet. */
  readonly #unsettled = new Map<string, { changes: number; readonly settled: PromiseWithResolvers<void> }>();

  constructor(options: CustomResourcesOptions) {
    this.#options = options;
    this.#queue = new WorkQueue({ clock: options.clock, baseDelayMs: RETRY_MS, maxDelayMs: MAX_RETRY_MS });
  }

  /** Resolves after the first attempt to serve each existing definition, whether it succeeded or not. */
  async start(): Promise<void> {
    const { definitions, logger, signal, catalog } = this.#options;
    catalog.settleBy((group, resource) => this.#settled(`${resource}.${group}`));
    for (const object of definitions.list()) {
      const { metadata, spec, status } = object as Definition;
      if (status?.acceptedNames !== undefined) {
        this.#names.set(metadata.name ?? '', spec.group, { accepted: status.acceptedNames, wanted: spec.names });
      }
    }
    const unserved = new Set(definitions.list().map(({ metadata }) => metadata.name ?? ''));
    definitions.subscribe(({ current, previous }) => this.#changed((current ?? previous)?.metadata.name ?? ''));
    signal.addEventListener('abort', () => this.#close(), { once: true });
    const served = Promise.withResolvers<void>();
    const attempted = (name: string): void => {
      if (unserved.delete(name) && unserved.size === 0) served.resolve();
    };
    background(this.#work(attempted).finally(served.resolve), { logger, what: 'Serving custom resources', signal });
    if (unserved.size > 0) await served.promise;
  }

  #close(): void {
    for (const { cache } of this.#served.values()) cache.close();
    this.#served.clear();
  }

  #changed(name: string): void {
    const unsettled = this.#unsettled.get(name);
    if (unsettled === undefined) this.#unsettled.set(name, { changes: 1, settled: Promise.withResolvers<void>() });
    else unsettled.changes += 1;
    this.#queue.add(name);
  }

  /**
   * Resolves after an attempt to serve the newest state of the definition, at the latest after `MAX_SETTLING_MS`. Returns
   * `undefined` if there is nothing to wait for.
   */
  #settled(name: string): Promise<void> | undefined {
    const unsettled = this.#unsettled.get(name);
    if (unsettled === undefined) return undefined;
    const { clock, signal } = this.#options;
    return Promise.race([unsettled.settled.promise, pause(clock, MAX_SETTLING_MS, signal)]);
  }

  async #syncAndSettle(name: string): Promise<void> {
    const { changes } = this.#unsettled.get(name) ?? {};
    try {
      await this.#sync(name);
    } finally {
      const unsettled = this.#unsettled.get(name);
      if (unsettled !== undefined && unsettled.changes === changes) {
        this.#unsettled.delete(name);
        unsettled.settled.resolve();
      }
    }
  }

  /** Runs the workers. `attempted` is called after each attempt, whether it succeeded or not. */
  #work(attempted: (name: string) => void): Promise<void> {
    const { signal, logger } = this.#options;
    return runWorkers({
      queue: this.#queue,
      workers: WORKERS,
      signal,
      reconcile: (name) => this.#syncAndSettle(name).finally(() => attempted(name)),
      onError: (error, name) => {
        if (!isConflict(error)) logger.warn({ err: error, definition: name }, 'A custom resource could not be served');
      },
    });
  }

  async #sync(name: string): Promise<void> {
    const definition = this.#options.definitions.get('', name) as Definition | undefined;
    if (definition === undefined) {
      this.#forget(name);
      return;
    }
    if (await this.#accept(definition)) return;
    if (isTrue(definition, 'Established')) await this.#serve(name, definition);
    const { deletionTimestamp, finalizers = [] } = definition.metadata;
    if (deletionTimestamp !== undefined && finalizers.includes(CLEANUP_FINALIZER)) this.#cleanUp(name, definition);
  }

  /**
   * Writes the accepted names and conditions if they changed. Resolves to whether a newer state of the definition follows.
   * Rejects with a conflict if the informer has not delivered that state yet.
   */
  async #accept(definition: Definition): Promise<boolean> {
    const { client, clock } = this.#options;
    const name = definition.metadata.name ?? '';
    const { group, names } = definition.spec;
    const builtIn = takenBy(builtInNames(group, this.#options.catalog.builtIn(group)));
    const status = namedStatus(definition, this.#names.takenFrom(name, group, builtIn), clock.now());
    if (status.acceptedNames !== undefined) {
      this.#wake(this.#names.set(name, group, { accepted: status.acceptedNames, wanted: names }));
    }
    if (jsonEqual(status, definition.status)) return false;
    try {
      const written = await client.update(
        customResourceDefinitions,
        { ...structuredClone(definition), status },
        { subresource: 'status' },
      );
      // The object of the informer is preferred, because it stays in memory.
      const shown = this.#options.definitions.get('', name);
      const isShown = shown?.metadata.resourceVersion === written.metadata.resourceVersion;
      const newest = (isShown ? shown : written) as Definition;
      if (isTrue(newest, 'Established')) await this.#serve(name, newest);
    } catch (error) {
      if (!isNotFound(error) && !isConflict(error)) throw error;
      if (isConflict(error) && this.#options.definitions.get('', name) === definition) throw error;
    }
    return true;
  }

  /** Queues definitions that may get names that became free. */
  #wake(names: readonly string[]): void {
    for (const name of names) this.#changed(name);
  }

  /** Serves the resource of a definition, unless it is served in this state or takes the names of a built-in resource. */
  async #serve(name: string, definition: Definition): Promise<void> {
    const { spec, metadata, status } = definition;
    if (takesBuiltIn(definition, this.#options.catalog.builtIn(spec.group))) return;
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
    const fields = fieldsKey(definition, readers);
    const currentCache = served?.fields === fields ? served.cache : undefined;
    const cache = currentCache ?? (await this.#openCache(definition, readers));
    const lease =
      served !== undefined && sameShape ? served.lease : leaseCache(cache, served === undefined ? 0 : cache.revision());
    const { storage, admission, clock, catalog } = this.#options;
    const base = { builtIn: false, cache: lease.cache, storage, admission, clock };
    const sets = servedVersions(definition, base, this.#options);
    this.#options.served.set(name, sets, cache);
    this.#served.set(name, { uid, cache, lease, fields, shape, terminating, sets });
    const names = new Set(sets.map(({ info }) => info.version));
    for (const { info } of served?.sets ?? []) {
      if (!names.has(info.version)) catalog.remove(info.group, info.version, info.resource);
    }
    catalog.set(sets.flatMap(({ rests }) => rests));
    // Clients that watch the previous shape have to list again.
    if (served !== undefined && served.lease !== lease) served.lease.end();
    if (currentCache === undefined) served?.cache.close();
  }

  #openCache({ spec }: Definition, readers: FieldReaders): Promise<WatchCache> {
    const { storage, clock, logger } = this.#options;
    const all = Object.entries(readers);
    const decoded = storedReader(spec.group, versionSchemas(spec.versions));
    return openWatchCache({
      storage,
      resource: {
        group: spec.group,
        resource: spec.names.plural,
        namespaced: spec.scope === 'Namespaced',
        fields(object) {
          if (all.length === 0) return {};
          const shown = decoded(object);
          return Object.fromEntries(all.map(([field, read]) => [field, read(shown)]));
        },
      },
      clock,
      logger,
    });
  }

  #forget(name: string): void {
    const served = this.#served.get(name);
    if (served !== undefined) {
      this.#served.delete(name);
      this.#options.served.delete(name);
      for (const { info } of served.sets) this.#options.catalog.remove(info.group, info.version, info.resource);
      served.cache.close();
    }
    this.#wake(this.#names.delete(name));
  }

  #cleanUp(name: string, definition: Definition): void {
    if (this.#cleaning.has(name)) return;
    this.#cleaning.add(name);
    const { signal, logger } = this.#options;
    this.#deleteObjects(name, definition)
      .catch((error: unknown) => {
        if (signal.aborted || isNotFound(error)) return;
        // Every server cleans up, and another one was first.
        if (!isConflict(error))
          logger.warn({ err: error, definition: name }, 'The objects of a custom resource could not be deleted');
        this.#queue.addAfter(name, RETRY_MS);
      })
      .finally(() => this.#cleaning.delete(name));
  }

  /**
   * Deletes all objects, then removes the finalizer, and then deletes the definition. Rejects if another server created objects
   * meanwhile.
   */
  async #deleteObjects(name: string, definition: Definition): Promise<void> {
    const { client, clock, signal, storage } = this.#options;
    const served = this.#served.get(name);
    const stored = definition.spec.versions.find((version) => version.storage)?.name;
    const info = served?.sets.find((set) => set.info.version === stored)?.info;
    if (!(await this.#writeDeletionInProgress(name, definition.metadata.uid))) return;
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
      if (storage.catchUp !== undefined) {
        await sleepOn(clock, OTHERS_WRITE_MS, signal);
        await storage.catchUp();
        if (served.cache.count() > 0)
          throw new Error('another server created objects meanwhile, which the next attempt deletes');
      }
    }
    const current = (await client.get(customResourceDefinitions, '', name)) as Definition;
    if (current.metadata.uid !== definition.metadata.uid) return;
    const finalizers = (current.metadata.finalizers ?? []).filter((one) => one !== CLEANUP_FINALIZER);
    await client.update(customResourceDefinitions, { ...current, metadata: { ...current.metadata, finalizers } });
    await client.delete(customResourceDefinitions, '', name, {
      preconditions: { uid: definition.metadata.uid ?? '' },
    });
  }

  /** Writes the condition `Terminating`. Resolves to false, without a write, if a newer definition has the name. */
  async #writeDeletionInProgress(name: string, uid: string | undefined): Promise<boolean> {
    const { client, clock } = this.#options;
    const condition = {
      type: 'Terminating',
      status: 'True',
      reason: 'InstanceDeletionInProgress',
      message: 'CustomResource deletion is in progress',
    };
    for (;;) {
      const current = (await client.get(customResourceDefinitions, '', name)) as Definition;
      if (current.metadata.uid !== uid) return false;
      setCondition((current.status ??= {}), condition, clock.now());
      try {
        await client.update(customResourceDefinitions, current, { subresource: 'status' });
        return true;
      } catch (error) {
        if (!isConflict(error)) throw error;
      }
    }
  }
}

/**
 * Returns a text that changes with the values by which objects are selected. Fields may have defaults, so these values depend
 * on the schemas as well.
 */
function fieldsKey({ spec }: Definition, readers: FieldReaders): string {
  const names = Object.keys(readers).sort();
  return names.length === 0 ? '' : stringifyJson([names, spec.versions.map(({ name, schema }) => [name, schema])]);
}

/** Returns the functions that read the selectable fields of all versions. */
function readersOf(definition: Definition): FieldReaders {
  return fieldReaders(definition.spec.versions.flatMap((version) => version.selectableFields ?? []));
}
