/** Converts objects between a served version of a resource and the stored one, for reads, writes and watches. */
import { errorMessage } from '../../api/meta/error-message.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { cloneJson } from '../../api/meta/json-equality.ts';
import { newBadRequest, newStatusError } from '../../api/meta/status-error.ts';
import type { ResourceInfo } from '../../api/schema/schema.ts';
import type { Decoder, ExpectedKind } from './object-decoding.ts';
import type { FieldManagement } from './field-management.ts';
import { newFieldSelector, type FieldSelector } from '../../api/meta/field-selector.ts';
import { convertWatch } from './converted-watch.ts';
import type { Entry, ListOptions, ListResult, WatchEvent, WatchHandle, WatchSink } from '../model/rest.ts';
import { selectionOf } from '../storage/selection.ts';
import { listMatching, servedMatcher, type Matches } from './served-selection.ts';
import { checkFields } from './store-read.ts';
import { unstoredEntry, type Store, type StoredResource } from './store.ts';
import type { Conversion } from './strategy.ts';

/** The dependencies of reads of a version. */
export interface ReadVersion {
  readonly store: StoredResource;
  readonly info: ResourceInfo;
  /** The conversion between both versions; `undefined` if the served version is the stored one. */
  readonly conversion: Conversion | undefined;
}

/** A version with what its writes need. */
export interface ServedVersion extends ReadVersion {
  readonly store: Store;
  readonly expected: ExpectedKind;
  readonly decoder: Decoder;
  readonly fieldManagement: FieldManagement;
  /** Why no object may be created now. */
  readonly createRefusal?: string | undefined;
}

/** Converts between one served version and the stored one. */
export class VersionCodec {
  /** The batches of events that were converted once for all watches of the version. */
  readonly #batches = new WeakMap<readonly WatchEvent[], readonly WatchEvent[]>();
  readonly #version: ReadVersion;
  readonly #served = new WeakMap<Entry, Entry>();

  constructor(version: ReadVersion) {
    this.#version = version;
  }

  /** Returns the entry in the served version, converted once for each stored entry. */
  entry(stored: Entry): Entry {
    const { conversion } = this.#version;
    if (conversion === undefined) return stored;
    let served = this.#served.get(stored);
    if (served === undefined) {
      const isServed = conversion.isServed?.(stored.object) === true;
      served = isServed ? stored : unstoredEntry(conversion.fromStored(cloneJson(stored.object)));
      this.#served.set(stored, served);
    }
    return served;
  }

  /** Converts the entries in advance if a webhook converts. Returns `undefined` if none is left for the webhook. */
  ready(entries: readonly Entry[]): Promise<void> | undefined {
    const { conversion } = this.#version;
    if (conversion?.convertAll === undefined) return undefined;
    const missing = entries.filter((entry) => !this.#served.has(entry));
    if (missing.length === 0) return undefined;
    const objects = missing.map(({ object }) => object);
    return conversion.convertAll(objects, 'served').then((converted) => {
      missing.forEach((entry, index) => {
        const object = converted[index];
        if (object !== undefined) this.#served.set(entry, object === objects[index] ? entry : unstoredEntry(object));
      });
    });
  }

  /** Returns the entry in the served version, or a promise of it if the webhook has to convert it. */
  servedEntry(stored: Entry): Promise<Entry> | Entry {
    const ready = this.ready([stored]);
    return ready === undefined ? this.entry(stored) : ready.then(() => this.entry(stored));
  }

  /** Translates the field names of a selector to the stored ones. Throws a 400 for a field that the version does not have. */
  withStoredFields<Options extends { readonly fieldSelector: FieldSelector }>(options: Options): Options {
    const names = this.#version.conversion?.fieldNames;
    if (names === undefined || options.fieldSelector.isEmpty) return options;
    const requirements = options.fieldSelector.requirements.map((requirement) => {
      const { field } = requirement;
      if (field === 'metadata.name' || field === 'metadata.namespace') return requirement;
      const stored = Object.hasOwn(names, field) ? names[field] : undefined;
      if (stored === undefined) throw newBadRequest(`field label not supported: ${field}`);
      return { ...requirement, field: stored };
    });
    return { ...options, fieldSelector: newFieldSelector(requirements) };
  }

  /**
   * Returns the filter for the entries of a list, or `undefined` if the cache can select them: a webhook may convert what the
   * selectors name. Throws a 400 for a field that it cannot select by.
   */
  matcher(options: Pick<ListOptions, 'labelSelector' | 'fieldSelector'>): Matches | undefined {
    const { conversion, store } = this.#version;
    if (conversion?.convertAll === undefined) return undefined;
    checkFields(store, options.fieldSelector);
    return servedMatcher(options, store.strategy.selectableFields);
  }

  /** Returns a list in this version. `page` returns stored entries. */
  listSelected(
    options: ListOptions,
    page: (options: ListOptions) => Promise<ListResult> | ListResult,
  ): Promise<ListResult> | ListResult {
    const matches = this.matcher(options);
    const listed = (one: ListResult): Promise<ListResult> | ListResult => this.#listedFor(options, one);
    if (matches !== undefined) return listMatching(options, matches, async (one) => listed(await page(one)));
    const result = page(this.withStoredFields(options));
    return result instanceof Promise ? result.then(listed) : listed(result);
  }

  /**
   * Converts a list as `list` does, but reports a failed conversion as kube-apiserver does, which reads most lists from a cache
   * of the version.
   */
  #listedFor(options: ListOptions, result: ListResult): Promise<ListResult> | ListResult {
    const { labelSelector, fieldSelector, limit } = options;
    const isPage = limit > 0 && labelSelector.isEmpty && fieldSelector.isEmpty;
    const fromStorage = isPage || options.continue !== '' || options.resourceVersionMatch === 'Exact';
    const filled = fromStorage ? undefined : this.#filled();
    return filled === undefined ? this.list(result) : filled.then(() => this.list(result));
  }

  /**
   * Converts all objects, because kube-apiserver fills the cache of a version before it lists and watches. Returns `undefined`
   * if nothing is left to convert. Rejects with a 429.
   */
  #filled(): Promise<void> | undefined {
    const { conversion, store, info } = this.#version;
    if (conversion?.convertAll === undefined) return undefined;
    return this.ready(store.cache.list({ selection: selectionOf('') }).entries)?.catch((error: unknown) => {
      const why = errorMessage(error);
      const message = `storage is (re)initializing: failed to list ${info.group}/${info.version}, Kind=${info.kind}: ${why}`;
      throw newStatusError(429, 'TooManyRequests', message, { details: { retryAfterSeconds: 1 }, cause: error });
    });
  }

  /** Returns the list in the served version. */
  list(result: ListResult): Promise<ListResult> | ListResult {
    if (this.#version.conversion === undefined) return result;
    const ready = this.ready(result.entries);
    return ready === undefined ? this.#listed(result) : ready.then(() => this.#listed(result));
  }

  #listed(result: ListResult): ListResult {
    return { ...result, entries: result.entries.map((entry) => this.entry(entry)) };
  }

  /** Opens a watch with `open`. Its events reach `client` in the served version. */
  async watch(client: WatchSink, open: (sink: WatchSink) => Promise<WatchHandle>): Promise<WatchHandle> {
    const { conversion } = this.#version;
    if (conversion === undefined) return open(client);
    if (conversion.convertAll === undefined)
      return open({
        isPatient: client.isPatient === true,
        onEvents: (events) => client.onEvents(this.#shared(events)),
        onEnd: () => client.onEnd(),
      });
    const convert = (events: readonly WatchEvent[]): readonly WatchEvent[] | Promise<readonly WatchEvent[]> => {
      const ready = this.ready(events.flatMap((event) => ('entry' in event ? [event.entry] : [])));
      return ready === undefined ? this.#shared(events) : ready.then(() => this.#shared(events));
    };
    const { store, info } = this.#version;
    await this.#filled();
    const watch = convertWatch(client, convert, (error) => store.storage.watchFailed(error, info.resource));
    return watch.attach(await open(watch.sink));
  }

  /** Returns one array of converted events for all watches of the version. */
  #shared(events: readonly WatchEvent[]): readonly WatchEvent[] {
    let served = this.#batches.get(events);
    if (served === undefined) {
      served = events.map((event) => ('entry' in event ? { type: event.type, entry: this.entry(event.entry) } : event));
      this.#batches.set(events, served);
    }
    return served;
  }

  /** Returns the object in the version that the store accepts: the stored one, or the served one if a webhook converts. */
  toWritten(object: KubeObject): KubeObject {
    const { conversion, store } = this.#version;
    if (conversion === undefined || conversion.convertAll !== undefined) return object;
    const stored = conversion.toStored(object);
    conversion.withholdDefaults?.(stored);
    store.strategy.applyDefaults?.(stored);
    return stored;
  }

  /** Returns the object of a request as the served version shows it after the write. */
  asServed(object: KubeObject): KubeObject {
    const { conversion } = this.#version;
    return conversion?.isLossy === true ? conversion.fromStored(conversion.toStored(cloneJson(object))) : object;
  }

  /** Returns the current object of a write in the served version. It is shared and must not be modified. */
  live(current: KubeObject): KubeObject {
    const { conversion } = this.#version;
    if (conversion === undefined || conversion.convertAll !== undefined) return current;
    if (conversion.isServed?.(current) === true) return current;
    return conversion.fromStored(cloneJson(current));
  }
}
