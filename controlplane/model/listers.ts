/**
 * Provides the objects that admission plugins, authenticators and authorizers read. `Listers` has an informer for each
 * requested resource, on a watch of the catalog; a `Lister` reads what the informer has.
 *
 * An informer lags behind writes a little. Where the newest state decides, `live` reads from the registry.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { ResourceOf } from '../../api/client/resources.ts';
import { namespacedName } from '../../api/meta/namespaced-name.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { everyField } from '../../api/meta/field-selector.ts';
import { everything } from '../../api/meta/selector.ts';
import { requestNameFault } from '../../api/meta/names.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import { SYSTEM_FIELD_MANAGER, SYSTEM_USER } from './system-user.ts';
import type { RequestContext, Rest, ResourceCatalog, WatchEvent, WatchHandle } from './rest.ts';

/** A change of an object. `current` is absent after a deletion, and `previous` is absent for a new object. */
export interface ListerChange<T> {
  readonly current: T | undefined;
  readonly previous: T | undefined;
}

/** Lists the objects of one resource, as its informer has them, and reports changes. */
export interface Lister<T extends KubeObject = KubeObject> {
  /** Returns an object from the cache. `namespace` is `''` for objects of the cluster. */
  get(namespace: string, name: string): T | undefined;
  /**
   * Reads the newest state from the registry. Resolves to `undefined` if there is no such object, and for a name that no path
   * can contain.
   */
  live(namespace: string, name: string): Promise<T | undefined>;
  /** Returns the objects of one namespace, or all objects. */
  list(namespace?: string): readonly T[];
  /** Receives the existing objects, then every change, in order. Must not throw. */
  subscribe(listener: (change: ListerChange<T>) => void): void;
  /** Resolves when the first list is loaded, or when the resource is found not to be served. */
  synced(): Promise<void>;
}

/** All listers of one process, each shared by its readers. */
export interface Listers {
  /** Returns the lister of a resource. The first call starts its informer. */
  of<T extends KubeObject>(resource: ResourceOf<T>): Lister<T>;
  /** Resolves when every informer that was requested so far is synced. */
  synced(): Promise<void>;
}

/** The signal stops the informers. */
interface ListersOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

interface InformerOptions extends ListersOptions {
  /** `ResourceCatalog.catchUp` of the resource. */
  readonly catchUp: () => Promise<void> | undefined;
}

const RETRY_MS = 1000;

/** Creates the listers. Those of the same resource in the same version share one informer. */
export function listersFromCatalog(catalog: ResourceCatalog, options: ListersOptions): Listers {
  const informers = new Map<string, CatalogInformer<KubeObject>>();
  return {
    of<T extends KubeObject>(resource: ResourceOf<T>): Lister<T> {
      const key = `${resource.group}/${resource.version}/${resource.resource}`;
      let informer = informers.get(key);
      if (informer === undefined) {
        informer = new CatalogInformer<KubeObject>(
          () => catalog.find(resource.group, resource.version, resource.resource, ''),
          {
            ...options,
            catchUp: () => catalog.catchUp?.(resource.group, resource.resource),
          },
        );
        informers.set(key, informer);
        informer.start();
      }
      return informer as Lister<KubeObject> as Lister<T>;
    },
    async synced() {
      await Promise.all([...informers.values()].map((informer) => informer.synced()));
    },
  };
}

/** Returns the context of the control plane's own reads. */
function systemContext(signal: AbortSignal): RequestContext {
  return {
    user: SYSTEM_USER,
    signal,
    fieldManager: SYSTEM_FIELD_MANAGER,
    userAgent: SYSTEM_FIELD_MANAGER,
    warn: () => undefined,
    annotate: () => undefined,
    may: () => Promise.resolve(true),
  };
}

/** Keeps the objects of one resource by a watch, which is opened again when it ends. */
class CatalogInformer<T extends KubeObject> implements Lister<T> {
  readonly #find: () => Rest | undefined;
  readonly #options: InformerOptions;
  readonly #context: RequestContext;
  readonly #byNamespace = new Map<string, Map<string, T>>();
  readonly #listeners: ((change: ListerChange<T>) => void)[] = [];
  readonly #filled = Promise.withResolvers<void>();
  /**
   * The keys of the existing objects that a new watch has sent so far. When it has sent all, objects with other keys are
   * removed, and this becomes `undefined` until another watch begins.
   */
  #initialKeys: Set<string> | undefined;

  constructor(find: () => Rest | undefined, options: InformerOptions) {
    this.#find = find;
    this.#options = options;
    this.#context = systemContext(options.signal);
  }

  start(): void {
    const { clock, signal, logger } = this.#options;
    const retryLater = (): void => {
      if (signal.aborted) return;
      clock.after(RETRY_MS, () => {
        if (!signal.aborted) this.start();
      });
    };
    const rest = this.#find();
    if (rest?.watch === undefined) {
      // The resource is not served (yet): there is nothing to read or to wait for.
      this.#filled.resolve();
      retryLater();
      return;
    }
    this.#initialKeys = new Set();
    const options = {
      labelSelector: everything,
      fieldSelector: everyField,
      resourceVersion: '',
      resourceVersionMatch: 'NotOlderThan' as const,
      allowWatchBookmarks: true,
      sendInitialEvents: true,
      name: '',
    };
    let watching: WatchHandle | undefined;
    const close = (): void => watching?.close();
    signal.addEventListener('abort', close, { once: true });
    const watchAgainLater = (): void => {
      signal.removeEventListener('abort', close);
      retryLater();
    };
    let isPaused = false;
    const resumeSoon = (): void => {
      isPaused = true;
      const handle = watching;
      if (handle !== undefined) setImmediate(() => handle.resume());
    };
    const sink = {
      onEvents: (events: readonly WatchEvent[]): boolean => {
        for (const event of events) this.#take(event);
        if (this.#initialKeys === undefined) return true;
        // Parsing all existing objects in one turn would block the event loop.
        resumeSoon();
        return false;
      },
      onEnd: watchAgainLater,
    };
    rest.watch(this.#context, '', options, sink).then(
      (handle) => {
        watching = handle;
        if (signal.aborted) close();
        else if (isPaused) resumeSoon();
      },
      (error: unknown) => {
        if (signal.aborted) return;
        logger.warn(
          { err: error, resource: rest.info.resource },
          'The objects of a resource could not be watched; trying again',
        );
        watchAgainLater();
      },
    );
  }

  #take(event: WatchEvent): void {
    if (event.type === 'ERROR') return;
    if (event.type === 'BOOKMARK') {
      if (event.initialEventsEnd) this.#endOfInitial();
      return;
    }
    const object = event.entry.object as T;
    if (event.type === 'DELETED') this.#remove(object);
    else {
      this.#initialKeys?.add(namespacedName(object));
      this.#put(object);
    }
  }

  #endOfInitial(): void {
    const keys = this.#initialKeys;
    this.#initialKeys = undefined;
    if (keys !== undefined) {
      for (const object of this.list()) if (!keys.has(namespacedName(object))) this.#remove(object);
    }
    this.#filled.resolve();
  }

  #put(object: T): void {
    const { namespace = '', name = '' } = object.metadata;
    let objects = this.#byNamespace.get(namespace);
    const previous = objects?.get(name);
    if (objects === undefined) this.#byNamespace.set(namespace, (objects = new Map()));
    objects.set(name, object);
    for (const listener of this.#listeners) listener({ current: object, previous });
  }

  #remove({ metadata: { namespace = '', name = '' } }: T): void {
    const objects = this.#byNamespace.get(namespace);
    const previous = objects?.get(name);
    objects?.delete(name);
    if (objects?.size === 0) this.#byNamespace.delete(namespace);
    if (previous === undefined) return;
    for (const listener of this.#listeners) listener({ current: undefined, previous });
  }

  get(namespace: string, name: string): T | undefined {
    return this.#byNamespace.get(namespace)?.get(name);
  }

  async live(namespace: string, name: string): Promise<T | undefined> {
    await this.#options.catchUp();
    if (requestNameFault(name) !== undefined) return undefined;
    try {
      const entry = await this.#find()?.get?.(this.#context, namespace, name, { resourceVersion: '' });
      return entry?.object as T | undefined;
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  list(namespace?: string): readonly T[] {
    if (namespace !== undefined) return [...(this.#byNamespace.get(namespace)?.values() ?? [])];
    const all: T[] = [];
    for (const objects of this.#byNamespace.values()) all.push(...objects.values());
    return all;
  }

  subscribe(listener: (change: ListerChange<T>) => void): void {
    for (const current of this.list()) listener({ current, previous: undefined });
    this.#listeners.push(listener);
  }

  synced(): Promise<void> {
    return this.#filled.promise;
  }
}
