/** Implements a catalog of a few resources in memory, for tests of the server. It supports every verb. */
import { everything } from '../../api/meta/selector.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { newAlreadyExists, newConflict, newExpired, newNotFound } from '../../api/meta/status-error.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import type {
  Entry,
  ListOptions,
  ListResult,
  ResourceCatalog,
  Rest,
  WatchEvent,
  WatchHandle,
  WatchOptions,
  WatchSink,
} from '../../controlplane/model/rest.ts';

/** Returns the info of a namespaced core resource with every verb. */
export function fakeInfo(resource: string, kind: string, options: Partial<ResourceInfo> = {}): ResourceInfo {
  return {
    group: '',
    version: 'v1',
    resource,
    kind,
    singular: kind.toLowerCase(),
    shortNames: [],
    categories: [],
    namespaced: true,
    verbs: ['create', 'delete', 'deletecollection', 'get', 'list', 'patch', 'update', 'watch'],
    subresources: [],
    ...options,
  };
}

interface Watcher {
  readonly namespace: string;
  readonly sink: WatchSink;
}

/** One resource. `emit` sends a batch of events to all watches, and `watchers` is the number of watches. */
export class FakeResource implements Rest {
  readonly info: ResourceInfo;
  readonly subresource = undefined;
  readonly #entries = new Map<string, Entry>();
  readonly #watchers = new Set<Watcher>();
  #revision = 1;
  /** The number of paused watches that were resumed. */
  resumed = 0;

  constructor(info: ResourceInfo) {
    this.info = info;
  }

  get watchers(): number {
    return this.#watchers.size;
  }

  entry(object: KubeObject): Entry {
    const { kind: _kind, apiVersion: _apiVersion, ...rest } = object;
    const apiVersion = this.info.group === '' ? this.info.version : `${this.info.group}/${this.info.version}`;
    const whole = { kind: this.info.kind, apiVersion, ...rest };
    return { object: whole, bytes: Buffer.from(JSON.stringify(whole)) };
  }

  put(namespace: string, object: KubeObject): Entry {
    this.#revision += 1;
    const metadata = {
      ...object.metadata,
      ...(this.info.namespaced ? { namespace } : {}),
      resourceVersion: String(this.#revision),
    };
    const entry = this.entry({ ...object, metadata });
    const key = `${namespace}/${metadata.name ?? ''}`;
    const existed = this.#entries.has(key);
    this.#entries.set(key, entry);
    this.emit([{ type: existed ? 'MODIFIED' : 'ADDED', entry }]);
    return entry;
  }

  emit(events: readonly WatchEvent[]): void {
    for (const watcher of this.#watchers) watcher.sink.onEvents(events);
  }

  endWatches(): void {
    for (const watcher of this.#watchers) watcher.sink.onEnd();
  }

  get(_context: unknown, namespace: string, name: string): Entry {
    return this.#existing(namespace, name);
  }

  #existing(namespace: string, name: string): Entry {
    const entry = this.#entries.get(`${namespace}/${name}`);
    if (entry === undefined) throw newNotFound(this.info, name);
    return entry;
  }

  list(_context: unknown, namespace: string, options: ListOptions): ListResult | Promise<ListResult> {
    return this.#listed(namespace, options);
  }

  #listed(namespace: string, options: ListOptions): ListResult {
    const entries = [...this.#entries.entries()]
      .filter(([key]) => namespace === '' || key.startsWith(`${namespace}/`))
      .map(([, entry]) => entry)
      .filter(
        (entry) =>
          options.labelSelector === everything || options.labelSelector.matches(entry.object.metadata.labels ?? {}),
      );
    const page = options.limit > 0 ? entries.slice(0, options.limit) : entries;
    const left = entries.length - page.length;
    return {
      entries: page,
      resourceVersion: String(this.#revision),
      continue: left > 0 ? 'more' : '',
      remainingItemCount: left > 0 ? left : undefined,
    };
  }

  async watch(_context: unknown, namespace: string, options: WatchOptions, sink: WatchSink): Promise<WatchHandle> {
    if (options.resourceVersion === '1') throw newExpired('too old resource version: 1 (2)');
    const watcher: Watcher = { namespace, sink };
    this.#watchers.add(watcher);
    if (options.resourceVersion === '' || options.resourceVersion === '0') {
      const events = [...this.#entries.values()].map((entry) => ({ type: 'ADDED', entry }) as const);
      if (events.length > 0) sink.onEvents(events);
    }
    return {
      resume: () => {
        this.resumed += 1;
      },
      close: () => this.#watchers.delete(watcher),
    };
  }

  async create(_context: unknown, namespace: string, _name: string, body: { readonly value: unknown }): Promise<Entry> {
    const object = body.value as KubeObject;
    const name = object.metadata.name ?? '';
    if (this.#entries.has(`${namespace}/${name}`)) throw newAlreadyExists(this.info, name);
    return this.put(namespace, object);
  }

  async update(
    _context: unknown,
    namespace: string,
    name: string,
    body: { readonly value: unknown },
  ): Promise<{ entry: Entry; created: boolean }> {
    const object = body.value as KubeObject;
    const old = this.#existing(namespace, name);
    const version = object.metadata.resourceVersion;
    if (version !== undefined && version !== old.object.metadata.resourceVersion) {
      throw newConflict(
        this.info,
        name,
        'the object has been modified; please apply your changes to the latest version and try again',
      );
    }
    return { entry: this.put(namespace, object), created: false };
  }

  async patch(
    _context: unknown,
    namespace: string,
    name: string,
    patch: { readonly body: unknown },
  ): Promise<{ entry: Entry; created: boolean }> {
    const old = this.#existing(namespace, name).object;
    const change = patch.body as KubeObject;
    return {
      entry: this.put(namespace, { ...old, ...change, metadata: { ...old.metadata, ...change.metadata } }),
      created: false,
    };
  }

  async delete(
    _context: unknown,
    namespace: string,
    name: string,
  ): Promise<{ state: 'gone'; entry: undefined; object: KubeObject }> {
    const entry = this.#existing(namespace, name);
    this.#entries.delete(`${namespace}/${name}`);
    this.emit([{ type: 'DELETED', entry }]);
    return { state: 'gone', entry: undefined, object: entry.object };
  }

  async deleteCollection(context: unknown, namespace: string, options: ListOptions): Promise<ListResult> {
    const result = this.#listed(namespace, options);
    for (const entry of result.entries) await this.delete(context, namespace, entry.object.metadata.name ?? '');
    return result;
  }
}

/** The catalog of the given rows, which do not change. */
export class FakeCatalog implements ResourceCatalog {
  readonly #rows: Rest[];

  constructor(rows: readonly Rest[]) {
    this.#rows = [...rows];
  }

  find(group: string, version: string, resource: string, subresource: string): Rest | undefined {
    return this.#rows.find(
      (rest) =>
        rest.info.group === group &&
        rest.info.version === version &&
        rest.info.resource === resource &&
        (rest.subresource?.name ?? '') === subresource,
    );
  }

  resources(): readonly ResourceInfo[] {
    return this.#rows.filter((rest) => rest.subresource === undefined).map((rest) => rest.info);
  }

  /** Does nothing, because this set does not change. */
  onChange(): () => void {
    return () => undefined;
  }
}
