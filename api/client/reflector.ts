/**
 * Keeps a copy of a resource current. It reads the whole contents, with a watch that sends initial events or with a list,
 * and then follows the changes with watches.
 *
 * The sink receives the changes after the last `replace` once and in order.
 */
import { namespacedName } from '../meta/namespaced-name.ts';
import { isExpired, isStatusError } from '../meta/status-error.ts';
import type { KubeObject } from '../meta/object.ts';
import type { Logger } from '../component/logger.ts';
import type { Client, ClientListOptions, ClientWatchEvent, Resource } from './client.ts';
import { boundedWaitMs } from './response-status.ts';
import { Backoff } from '../machinery/backoff.ts';
import type { Clock } from '../machinery/clock.ts';

const INITIAL_EVENTS_END = 'k8s.io/initial-events-end';
const PAGE_SIZE = 500;
const BACKOFF = { firstMs: 800, longestMs: 30_000 };
/** The duration of a run without an error that resets the backoff. */
const HEALTHY_AFTER_MS = 120_000;

interface ReflectorSink {
  /**
   * Receives the whole contents, as of `resourceVersion`. No change follows before a promise resolves. It may reject only when
   * the signal aborts.
   */
  replace(items: readonly KubeObject[], resourceVersion: string, signal: AbortSignal): void | Promise<void>;
  apply(event: ClientWatchEvent): void;
}

/** Converts an object to the schema of its kind. Throws an error with the fault of an object that does not fit it. */
export type ShapeObject = (resource: Resource, object: unknown) => KubeObject;

/** The objects to follow; all of them if it is empty. */
export interface ReflectorSelection {
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
}

interface ReflectorOptions extends ReflectorSelection {
  readonly client: Client;
  readonly resource: Resource;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Whether to read the initial contents with a watch. */
  readonly watchList?: boolean;
  /** Objects pass as they are without it. */
  readonly shape?: ShapeObject;
  /** Returns a random number in [0, 1). */
  readonly random?: () => number;
}

/** Lists and watches the resource into the sink until the signal aborts. Never rejects. Failures are logged and retried. */
export async function runReflector(options: ReflectorOptions, sink: ReflectorSink, signal: AbortSignal): Promise<void> {
  const reflector = new Reflector(options, sink);
  while (!signal.aborted) {
    try {
      await reflector.step(signal);
    } catch (error) {
      if (signal.aborted) return;
      await reflector.backOff(error, signal);
    }
  }
}

type Position =
  | { readonly kind: 'empty' }
  | { readonly kind: 'lost' }
  | { readonly kind: 'at'; readonly resourceVersion: string };

class Reflector {
  readonly #options: ReflectorOptions;
  readonly #sink: ReflectorSink;
  readonly #selection: ReflectorSelection;
  #position: Position = { kind: 'empty' };
  #watchList: boolean;
  readonly #backoff: Backoff;
  #lastFailure = Number.NEGATIVE_INFINITY;

  constructor(options: ReflectorOptions, sink: ReflectorSink) {
    this.#options = options;
    this.#sink = sink;
    this.#backoff = new Backoff({ ...BACKOFF, jitter: 1, random: options.random ?? Math.random });
    this.#watchList = options.watchList ?? true;
    const { namespace, labelSelector, fieldSelector } = options;
    this.#selection = {
      ...(namespace === undefined ? {} : { namespace }),
      ...(labelSelector === undefined ? {} : { labelSelector }),
      ...(fieldSelector === undefined ? {} : { fieldSelector }),
    };
  }

  /** Runs one list, or one watch until it ends. */
  async step(signal: AbortSignal): Promise<void> {
    if (this.#position.kind === 'at') await this.#follow(this.#position.resourceVersion, signal);
    else if (this.#watchList) await this.#watchContents(signal);
    else await this.#listContents(signal);
  }

  async backOff(error: unknown, signal: AbortSignal): Promise<void> {
    const { clock, logger, resource } = this.#options;
    if (isExpired(error)) {
      this.#position = { kind: 'lost' };
      logger.debug({ resource: resource.resource, err: error }, 'The history is no longer available; listing again');
    } else {
      logger.warn({ resource: resource.resource, err: error }, 'The resource could not be watched; trying again');
    }
    if (clock.monotonic() - this.#lastFailure > HEALTHY_AFTER_MS) this.#backoff.reset();
    this.#lastFailure = clock.monotonic();
    const askedMs = isStatusError(error) ? boundedWaitMs(error.status.details?.retryAfterSeconds) : 0;
    await clock.sleep(Math.max(askedMs, this.#backoff.next()), signal).catch(ignoreAbort(signal));
  }

  /**
   * Reads the initial contents as a stream of events that ends with a marked bookmark, and then follows the changes with the
   * same watch.
   */
  async #watchContents(signal: AbortSignal): Promise<void> {
    const { client, resource } = this.#options;
    const contents = new Map<string, KubeObject>();
    let isComplete = false;
    const stream = client.watch(resource, {
      ...this.#selection,
      sendInitialEvents: true,
      resourceVersionMatch: 'NotOlderThan',
      timeoutSeconds: this.#timeoutSeconds(),
      signal,
    });
    try {
      for await (const received of stream) {
        const event = this.#usable(received);
        if (event === undefined) continue;
        if (isComplete) this.#advance(event);
        else if (event.type === 'BOOKMARK') {
          if (event.object.metadata.annotations?.[INITIAL_EVENTS_END] !== 'true') continue;
          isComplete = true;
          await this.#replaced([...contents.values()], event.object.metadata.resourceVersion ?? '', signal);
          contents.clear();
        } else if (event.type === 'DELETED') contents.delete(namespacedName(event.object));
        else contents.set(namespacedName(event.object), event.object);
      }
      // A server that ends watches at once must not be called in a tight loop.
      if (!isComplete && !signal.aborted) throw new Error('the watch ended before it had sent the whole contents');
    } catch (error) {
      if (isComplete || signal.aborted || !isRefusal(error)) throw error;
      this.#watchList = false;
    }
  }

  async #listContents(signal: AbortSignal): Promise<void> {
    const { client, resource } = this.#options;
    const items: KubeObject[] = [];
    // At first, cached contents are good enough. After the history was lost, only the newest state is certain not to be older
    // than what was seen.
    let page: Pick<ClientListOptions, 'resourceVersion' | 'continue' | 'limit'> =
      this.#position.kind === 'empty' ? { resourceVersion: '0' } : { limit: PAGE_SIZE };
    for (;;) {
      const list = await client.list(resource, { ...this.#selection, ...page, signal });
      for (const item of list.items) {
        const usable = this.#usable({ type: 'ADDED', object: item });
        if (usable !== undefined) items.push(usable.object);
      }
      if (list.metadata.continue === undefined || list.metadata.continue === '') {
        await this.#replaced(items, list.metadata.resourceVersion ?? '', signal);
        return;
      }
      page = { limit: PAGE_SIZE, continue: list.metadata.continue };
    }
  }

  /** Follows the changes with one watch until it ends. Rejects if it ends at once without an event. */
  async #follow(resourceVersion: string, signal: AbortSignal): Promise<void> {
    const { client, resource, clock } = this.#options;
    const started = clock.monotonic();
    let events = 0;
    const timeoutSeconds = this.#timeoutSeconds();
    for await (const event of client.watch(resource, { ...this.#selection, resourceVersion, timeoutSeconds, signal })) {
      events++;
      const usable = this.#usable(event);
      if (usable !== undefined) this.#advance(usable);
    }
    if (signal.aborted) return;
    // A server that ends watches at once must not be called in a tight loop.
    if (events === 0 && clock.monotonic() - started < 1000) throw new Error('the watch ended at once');
  }

  async #replaced(items: readonly KubeObject[], resourceVersion: string, signal: AbortSignal): Promise<void> {
    await this.#sink.replace(items, resourceVersion, signal);
    this.#position = { kind: 'at', resourceVersion };
  }

  #advance(event: ClientWatchEvent): void {
    if (event.type !== 'BOOKMARK') this.#sink.apply(event);
    const resourceVersion = event.object.metadata.resourceVersion;
    if (resourceVersion !== undefined && resourceVersion !== '') this.#position = { kind: 'at', resourceVersion };
  }

  /**
   * Returns the event if its object can be used. A broken object must not delay others, so it is logged and ignored, unless the
   * event deletes it.
   */
  #usable(event: ClientWatchEvent): ClientWatchEvent | undefined {
    const { resource, logger, shape } = this.#options;
    const { type, object } = event;
    if (!hasIdentity(object)) {
      logger.error({ resource: resource.resource }, 'Ignoring an object without an identity');
      return undefined;
    }
    if (shape === undefined || type === 'BOOKMARK') return event;
    try {
      return { type, object: shape(resource, object) };
    } catch (error) {
      const { name = '', namespace = '', resourceVersion = '' } = object.metadata;
      logger.error(
        { resource: resource.resource, object: `${namespace}/${name}`, err: error },
        'Ignoring a malformed object',
      );
      return type === 'DELETED' ? { type, object: { metadata: { name, namespace, resourceVersion } } } : undefined;
    }
  }

  /** Returns between 5 and 10 minutes, so that the watches of many clients do not end together. */
  #timeoutSeconds(): number {
    return Math.floor(300 * (1 + (this.#options.random ?? Math.random)()));
  }
}

/** The fields of the metadata that caches and watches depend on. */
const IDENTITY = ['name', 'namespace', 'uid', 'resourceVersion'] as const;

/** Whether the value is an object of the API, as far as a cache depends on it. A bookmark has no name. */
function hasIdentity(value: unknown): boolean {
  const metadata = (value as { readonly metadata?: Readonly<Record<string, unknown>> | null } | null)?.metadata;
  if (typeof metadata !== 'object' || metadata === null) return false;
  for (const field of IDENTITY) if (metadata[field] !== undefined && typeof metadata[field] !== 'string') return false;
  return true;
}

/** Whether the server does not support initial events. It then returns one of these errors. */
function isRefusal(error: unknown): boolean {
  return (
    isStatusError(error, 'Invalid') || isStatusError(error, 'BadRequest') || isStatusError(error, 'MethodNotAllowed')
  );
}

function ignoreAbort(signal: AbortSignal): (error: unknown) => void {
  return (error) => {
    if (!signal.aborted) throw error;
  };
}
