/**
 * Implements the client of controllers in the control plane's own process. It serves the same resources with the same
 * authorization and admission as HTTP, but without sockets and serialization.
 *
 * Without `shared`, objects that it returns are copies that the caller owns. Objects that it receives are copied before the
 * registry uses them.
 */
import type { Clock } from '../../api/machinery/clock.ts';
import type {
  Client,
  ClientDeleteOptions,
  ClientListOptions,
  ClientWatchEvent,
  ClientWatchOptions,
  ClientCreateOptions,
  ClientWriteOptions,
  ClientPatch,
  Resource,
} from '../../api/client/client.ts';
import type { LoopTurns } from '../../api/machinery/loop-turns.ts';
import { TimeSlice } from '../../api/machinery/time-slice.ts';
import { cloneJson } from '../../api/meta/json-equality.ts';
import { apiVersionOf, type KubeList, type KubeObject } from '../../api/meta/object.ts';
import { parseSelector } from '../../api/meta/selector-parser.ts';
import { everything } from '../../api/meta/selector.ts';
import { everyField, parseFieldSelector } from '../../api/meta/field-selector.ts';
import { newMethodNotSupported, newNotFound } from '../../api/meta/status-error.ts';
import type { UserInfo } from '../model/user-info.ts';
import type { AuthorizationAttributes, Authorizer } from '../security/authorization/authorization.ts';
import type {
  DeleteOptions,
  Entry,
  ListOptions,
  Patch,
  RequestContext,
  ResourceCatalog,
  Rest,
  WatchEvent,
  WatchHandle,
} from '../model/rest.ts';
import { forbiddenError } from './filters/authorization.ts';

interface DirectClientOptions {
  readonly catalog: ResourceCatalog;
  readonly authorizer: Authorizer;
  readonly clock: Clock;
  readonly user: UserInfo;
  /** The manager in managed fields, and the text before the slash of the user agent. */
  readonly fieldManager: string;
  /** All clients of the process share it, so that together they yield to the event loop in time. */
  readonly turns?: LoopTurns;
  /** Lists and watches return the cache's own objects, which must never be modified. */
  readonly shared?: boolean;
}

/** The number of events waiting for the reader of a watch from which on the watch pauses. */
const MAX_QUEUED_EVENTS = 1000;
const NEVER = new AbortController().signal;

/**
 * Creates a client that calls the API server in this process. It acts as the user of the options: its requests are authorized,
 * but not audited. It throws the `StatusError`s of the API.
 */
export function createDirectClient(options: DirectClientOptions): Client {
  return new DirectClient(options);
}

class DirectClient implements Client {
  readonly #options: DirectClientOptions;

  constructor(options: DirectClientOptions) {
    this.#options = options;
  }

  async get(
    resource: Resource,
    namespace: string,
    name: string,
    options: { readonly subresource?: string; readonly resourceVersion?: string; readonly signal?: AbortSignal } = {},
  ): Promise<KubeObject> {
    const rest = this.#rest(resource, options.subresource);
    if (rest.get === undefined) throw unsupported(resource, 'get');
    const context = await this.#allow('get', resource, { namespace, name }, options);
    const entry = await rest.get(context, namespace, name, { resourceVersion: options.resourceVersion ?? '' });
    return owned(entry);
  }

  async list(resource: Resource, options: ClientListOptions = {}): Promise<KubeList> {
    const rest = this.#rest(resource);
    if (rest.list === undefined) throw unsupported(resource, 'list');
    const namespace = options.namespace ?? '';
    const context = await this.#allow('list', resource, { namespace }, options);
    const result = await rest.list(context, namespace, listOptionsOf(options));
    return {
      kind: `${resource.kind}List`,
      apiVersion: apiVersionOf(resource),
      metadata: {
        resourceVersion: result.resourceVersion,
        ...(result.continue === '' ? {} : { continue: result.continue }),
        ...(result.remainingItemCount === undefined ? {} : { remainingItemCount: result.remainingItemCount }),
      },
      items: await this.#objectsOf(result.entries, options.signal),
    };
  }

  /** Returns the objects of a list in slices, because parsing or copying thousands of objects would block the event loop. */
  async #objectsOf(entries: readonly Entry[], signal: AbortSignal | undefined): Promise<KubeObject[]> {
    const give = this.#options.shared === true ? sharedObject : owned;
    const slice = new TimeSlice(this.#options.clock);
    const objects: KubeObject[] = [];
    for (const entry of entries) {
      objects.push(give(entry));
      if (!slice.isSpent) continue;
      await slice.pause();
      signal?.throwIfAborted();
    }
    return objects;
  }

  async create(
    resource: Resource,
    namespace: string,
    object: KubeObject,
    options: ClientCreateOptions = {},
  ): Promise<KubeObject> {
    const rest = this.#rest(resource, options.subresource);
    if (rest.create === undefined) throw unsupported(resource, 'create');
    const name = options.name ?? (options.subresource === undefined ? '' : (object.metadata.name ?? ''));
    const context = await this.#allow('create', resource, { namespace, name }, options);
    const body = { value: cloneJson(object), duplicates: [] };
    const created = await rest.create(context, namespace, name, body, writeOptionsOf(options));
    return owned('entry' in created ? created.entry : created);
  }

  async update(resource: Resource, object: KubeObject, options: ClientWriteOptions = {}): Promise<KubeObject> {
    const rest = this.#rest(resource, options.subresource);
    if (rest.update === undefined) throw unsupported(resource, 'update');
    const { name = '', namespace = '' } = object.metadata;
    const context = await this.#allow('update', resource, { namespace, name }, options);
    const body = { value: cloneJson(object), duplicates: [] };
    const written = await rest.update(context, namespace, name, body, writeOptionsOf(options));
    return owned(written.entry);
  }

  async patch(resource: Resource, namespace: string, name: string, patch: ClientPatch): Promise<KubeObject> {
    const rest = this.#rest(resource, patch.subresource);
    if (rest.patch === undefined) throw unsupported(resource, 'patch');
    const context = await this.#allow('patch', resource, { namespace, name }, patch);
    const written = await rest.patch(context, namespace, name, patchOf(patch), writeOptionsOf(patch));
    return owned(written.entry);
  }

  async delete(
    resource: Resource,
    namespace: string,
    name: string,
    options: ClientDeleteOptions = {},
  ): Promise<unknown> {
    const rest = this.#rest(resource);
    if (rest.delete === undefined) throw unsupported(resource, 'delete');
    const context = await this.#allow('delete', resource, { namespace, name }, options);
    const deleted = await rest.delete(context, namespace, name, deleteOptionsOf(options));
    if (deleted.entry !== undefined) return owned(deleted.entry);
    return { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success' };
  }

  async deleteCollection(resource: Resource, options: ClientListOptions & ClientDeleteOptions): Promise<void> {
    const rest = this.#rest(resource);
    if (rest.deleteCollection === undefined) throw unsupported(resource, 'deletecollection');
    const namespace = options.namespace ?? '';
    const context = await this.#allow('deletecollection', resource, { namespace }, options);
    await rest.deleteCollection(context, namespace, listOptionsOf(options), deleteOptionsOf(options));
  }

  async *watch(
    resource: Resource,
    options: ClientWatchOptions = {},
  ): AsyncGenerator<ClientWatchEvent, void, undefined> {
    const rest = this.#rest(resource);
    if (rest.watch === undefined) throw unsupported(resource, 'watch');
    const namespace = options.namespace ?? '';
    const context = await this.#allow('watch', resource, { namespace }, options);
    const { limit: _limit, continue: _continue, ...list } = listOptionsOf(options);
    const queue = new WatchQueue();
    const timeoutMs = options.timeoutSeconds === undefined ? undefined : options.timeoutSeconds * 1000;
    const handle = await rest.watch(
      context,
      namespace,
      {
        ...list,
        allowWatchBookmarks: true,
        sendInitialEvents: options.sendInitialEvents,
        name: '',
      },
      queue,
    );
    const timer = timeoutMs === undefined ? undefined : this.#options.clock.after(timeoutMs, () => queue.onEnd());
    const onAbort = (): void => queue.onEnd();
    options.signal?.addEventListener('abort', onAbort, { once: true });
    if (options.signal?.aborted === true) queue.onEnd();
    // The time in which the reader handles an event counts for the slice, because the reader then takes the next event.
    const slice = new TimeSlice(this.#options.clock);
    try {
      for (;;) {
        const isWaiting = queue.isEmpty;
        if (!isWaiting && slice.isSpent) await slice.pause();
        const event = await queue.next(handle);
        if (isWaiting) slice.begin();
        if (event === undefined) return;
        if (event.type === 'ERROR') throw event.error;
        yield clientEvent(event, resource, this.#options.shared === true ? sharedObject : owned);
      }
    } finally {
      timer?.cancel();
      options.signal?.removeEventListener('abort', onAbort);
      handle.close();
    }
  }

  #rest(resource: Resource, subresource = ''): Rest {
    const rest = this.#options.catalog.find(resource.group, resource.version, resource.resource, subresource);
    if (rest === undefined) throw newNotFound(resource, '');
    return rest;
  }

  /** Authorizes a request, and returns its context. Rejects with a 403 if it is not allowed. */
  async #allow(
    verb: string,
    resource: Resource,
    { namespace, name = '' }: { readonly namespace: string; readonly name?: string },
    options: {
      readonly subresource?: string;
      readonly fieldManager?: string;
      readonly signal?: AbortSignal;
      readonly resourceVersion?: string;
    },
  ): Promise<RequestContext> {
    const { authorizer, user, turns, catalog } = this.#options;
    await turns?.begin();
    if (catalog.catchUp !== undefined && (options.resourceVersion ?? '') === '')
      await catalog.catchUp(resource.group, resource.resource);
    options.signal?.throwIfAborted();
    const attributes = attributesOf(user, verb, {
      ...resource,
      subresource: options.subresource ?? '',
      namespace,
      name,
    });
    const decision = await authorizer.authorize(attributes);
    if (decision.decision !== 'allow') throw forbiddenError(attributes, decision.reason);
    return {
      user,
      signal: options.signal ?? NEVER,
      fieldManager: options.fieldManager ?? this.#options.fieldManager,
      userAgent: this.#options.fieldManager,
      warn: () => undefined,
      annotate: () => undefined,
      async may(otherVerb, target) {
        const other = attributesOf(user, otherVerb, { version: '*', subresource: '', ...target });
        return (await authorizer.authorize(other)).decision === 'allow';
      },
    };
  }
}

/**
 * The events that a watch has delivered and its reader has not taken. A waiting reader gets them later than the commit: Node.js
 * sends the responses to the writers first.
 */
class WatchQueue {
  #events: WatchEvent[] = [];
  #next = 0;
  #ended = false;
  #paused = false;
  #wake: (() => void) | undefined;

  onEvents(events: readonly WatchEvent[]): boolean {
    for (const event of events) this.#events.push(event);
    const wake = this.#wake;
    this.#wake = undefined;
    if (wake !== undefined) setImmediate(wake);
    this.#paused = this.#events.length - this.#next >= MAX_QUEUED_EVENTS;
    return !this.#paused;
  }

  onEnd(): void {
    this.#ended = true;
    this.#wake?.();
  }

  get isEmpty(): boolean {
    return this.#next === this.#events.length;
  }

  /** Resolves to the next event, or to `undefined` after the last one. */
  async next(handle: WatchHandle): Promise<WatchEvent | undefined> {
    for (;;) {
      const event = this.#events[this.#next];
      if (event !== undefined) {
        this.#next += 1;
        return event;
      }
      this.#events = [];
      this.#next = 0;
      if (this.#paused) {
        this.#paused = false;
        handle.resume();
        continue;
      }
      if (this.#ended) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
  }
}

function clientEvent(
  event: Exclude<WatchEvent, { type: 'ERROR' }>,
  resource: Resource,
  give: (entry: Entry) => KubeObject,
): ClientWatchEvent {
  if (event.type !== 'BOOKMARK') return { type: event.type, object: give(event.entry) };
  return {
    type: 'BOOKMARK',
    object: {
      kind: resource.kind,
      apiVersion: apiVersionOf(resource),
      metadata: {
        resourceVersion: event.resourceVersion,
        ...(event.initialEventsEnd ? { annotations: { 'k8s.io/initial-events-end': 'true' } } : {}),
      },
    },
  };
}

function attributesOf(
  user: UserInfo,
  verb: string,
  target: { group: string; version: string; resource: string; subresource: string; namespace: string; name: string },
): AuthorizationAttributes {
  const { group, version, resource, subresource, namespace, name } = target;
  return { user, verb, isResourceRequest: true, group, version, resource, subresource, namespace, name, path: '' };
}

function sharedObject(entry: Entry): KubeObject {
  return entry.object;
}

function owned(entry: Entry): KubeObject {
  return cloneJson(entry.object);
}

const unsupported = (resource: Resource, verb: string): Error => newMethodNotSupported(resource, verb);

function listOptionsOf(options: ClientListOptions): ListOptions {
  const { labelSelector = '', fieldSelector = '' } = options;
  return {
    labelSelector: labelSelector === '' ? everything : parseSelector(labelSelector),
    fieldSelector: fieldSelector === '' ? everyField : parseFieldSelector(fieldSelector),
    resourceVersion: options.resourceVersion ?? '',
    resourceVersionMatch: (options.resourceVersionMatch ?? '') as ListOptions['resourceVersionMatch'],
    limit: options.limit ?? 0,
    continue: options.continue ?? '',
  };
}

function writeOptionsOf(options: ClientWriteOptions): { dryRun: boolean; fieldValidation: 'Ignore' } {
  return { dryRun: options.dryRun ?? false, fieldValidation: 'Ignore' };
}

function deleteOptionsOf(options: ClientDeleteOptions): DeleteOptions {
  return {
    dryRun: options.dryRun ?? false,
    gracePeriodSeconds: options.gracePeriodSeconds,
    propagationPolicy: options.propagationPolicy ?? '',
    orphanDependents: undefined,
    preconditions: options.preconditions,
  };
}

function patchOf({ type, body: given, force = false }: ClientPatch): Patch {
  const body = cloneJson(given);
  if (type === 'apply') return { type, body, duplicates: [], force };
  return { type, body, duplicates: [] };
}
