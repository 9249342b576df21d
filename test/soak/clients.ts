/** Implements the clients of a soak test: random writers and readers, and watches that are continuous, slow, or reopened. */
import { systemClock } from '../../api/machinery/clock.ts';
import type { Answer, Api, ApiObject, OpenWatch } from './api.ts';
import type { Operation, SeenVersion, WatchSegment } from './history.ts';
import type { Random } from './random.ts';

const PATH = '/api/v1/namespaces/default/configmaps';
const KEYS = 24;
/** How many keys that are used only once a writer has at a time. */
const LIVES = 12;
const PREFIX = 'soak-';

export interface Recording {
  readonly operations: Operation[];
  readonly segments: WatchSegment[];
  readonly counts: Map<string, number>;
}

/** Increments a count of the recording. */
export function count(recording: Recording, what: string): void {
  recording.counts.set(what, (recording.counts.get(what) ?? 0) + 1);
}

const versionOf = ({ metadata, data }: ApiObject): SeenVersion => ({
  revision: Number(metadata?.resourceVersion),
  value: data?.v ?? '',
});
const isOurs = ({ metadata }: ApiObject): boolean => metadata?.name?.startsWith(PREFIX) === true;
/** Statuses that guarantee that nothing was written. With all others, the outcome is unknown. */
const REFUSED = new Set([400, 401, 403, 404, 409, 410, 422, 429]);

/** The messages of errors with which the disk or etcd refuses a write without having written it. */
const NO_ROOM = /the disk is full|database space exceeded/;

/** A client that reads and writes keys at random and records each operation. */
export class Writer {
  readonly #api: Api;
  readonly #random: Random;
  readonly #recording: Recording;
  readonly #name: string;
  /** The last revision of each key that any writer saw, which updates expect. */
  readonly #seen: Map<string, number>;
  #writes = 0;
  readonly #lives: { readonly key: string; readonly isUpdated: boolean }[] = [];

  constructor(name: string, api: Api, random: Random, recording: Recording, seen: Map<string, number>) {
    this.#name = name;
    this.#api = api;
    this.#random = random;
    this.#recording = recording;
    this.#seen = seen;
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#step();
      await systemClock.sleep(this.#random.between(0, 25));
    }
  }

  async #step(): Promise<void> {
    const key = `${PREFIX}${this.#random.between(0, KEYS - 1)}`;
    const expected = this.#seen.get(key);
    const choice = this.#random.next();
    if (choice > 0.75) await this.#live();
    else if (choice < 0.15) await this.#read(key);
    else if (choice < 0.22) await list(this.#api, this.#recording, this.#random.next() < 0.5 ? 7 : 0);
    else if (expected === undefined) await this.create(key);
    else if (choice < 0.4) await this.#delete(key, expected);
    else await this.#update(key, expected);
  }

  /**
   * Advances the life of a key that is used only once: it is created, updated and deleted at intervals of some seconds. If it
   * reappears, the next list shows it. A key that is used again would hide that.
   */
  async #live(): Promise<void> {
    const next = this.#lives.length < LIVES ? undefined : this.#lives.shift();
    const expected = next === undefined ? undefined : this.#seen.get(next.key);
    if (next === undefined) {
      const key = `${PREFIX}${this.#name}-${this.#writes}`;
      this.#lives.push({ key, isUpdated: false });
      await this.create(key);
    } else if (expected !== undefined && next.isUpdated) {
      await this.#delete(next.key, expected);
      if (this.#seen.has(next.key)) this.#lives.push(next);
    } else if (expected !== undefined) {
      this.#lives.push({ key: next.key, isUpdated: true });
      await this.#update(next.key, expected);
    }
  }

  #object(key: string, expected: number | undefined): { readonly value: string; readonly body: object } {
    this.#writes += 1;
    const value = `${this.#name}-${this.#writes}`;
    const version = expected === undefined ? {} : { resourceVersion: String(expected) };
    const pad = 'x'.repeat(this.#random.between(0, 3000));
    const body = { kind: 'ConfigMap', apiVersion: 'v1', metadata: { name: key, ...version }, data: { v: value, pad } };
    return { value, body };
  }

  async create(key: string): Promise<boolean> {
    const { value, body } = this.#object(key, undefined);
    return this.#write(key, value, undefined, () => this.#api.call('POST', PATH, body));
  }

  async #update(key: string, expected: number): Promise<void> {
    const { value, body } = this.#object(key, expected);
    await this.#write(key, value, expected, () => this.#api.call('PUT', `${PATH}/${key}`, body));
  }

  async #delete(key: string, expected: number): Promise<void> {
    const body = { kind: 'DeleteOptions', apiVersion: 'v1', preconditions: { resourceVersion: String(expected) } };
    await this.#write(key, undefined, expected, () => this.#api.call('DELETE', `${PATH}/${key}`, body));
  }

  async #write(
    key: string,
    value: string | undefined,
    expected: number | undefined,
    send: () => Promise<Answer>,
  ): Promise<boolean> {
    const startMs = performance.now();
    const { status, body, server } = await send();
    const endMs = performance.now();
    const isFull = status === 500 && NO_ROOM.test(body.message ?? '');
    const outcome = status === 200 || status === 201 ? 'done' : REFUSED.has(status) || isFull ? 'refused' : 'unknown';
    const revision = outcome === 'done' && value !== undefined ? versionOf(body).revision : undefined;
    this.#recording.operations.push({ kind: 'write', key, value, expected, outcome, revision, startMs, endMs, server });
    count(this.#recording, isFull ? 'writes that found no room' : `writes ${outcome}`);
    if (revision !== undefined) this.#seen.set(key, revision);
    else if (value === undefined && outcome === 'done') this.#seen.delete(key);
    else if (outcome !== 'done') await this.#read(key);
    return outcome === 'done';
  }

  async #read(key: string): Promise<void> {
    const startMs = performance.now();
    const { status, body, server } = await this.#api.call('GET', `${PATH}/${key}`);
    const endMs = performance.now();
    if (status !== 200 && status !== 404) return count(this.#recording, 'reads without an answer');
    const found = status === 200 ? versionOf(body) : undefined;
    this.#recording.operations.push({ kind: 'read', key, found, startMs, endMs, server });
    count(this.#recording, 'reads');
    if (found === undefined) this.#seen.delete(key);
    else this.#seen.set(key, found.revision);
  }
}

/**
 * Lists all objects of the test, in pages unless `limit` is 0. Resolves to the revision, or to `undefined` without a response.
 */
export async function list(api: Api, recording: Recording, limit: number): Promise<number | undefined> {
  const startMs = performance.now();
  const items = new Map<string, SeenVersion>();
  let next = '';
  let revision: number | undefined;
  let server: number | undefined;
  do {
    const answer = await api.call('GET', `${PATH}?limit=${limit}&continue=${encodeURIComponent(next)}`);
    const { status, body } = answer;
    server = answer.server;
    if (status !== 200) {
      count(recording, status === 410 ? 'lists that expired' : 'lists without an answer');
      return undefined;
    }
    revision ??= Number(body.metadata?.resourceVersion);
    for (const item of body.items ?? []) if (isOurs(item)) items.set(item.metadata?.name ?? '', versionOf(item));
    next = body.metadata?.continue ?? '';
  } while (next !== '');
  recording.operations.push({ kind: 'list', revision, items, startMs, endMs: performance.now(), server });
  count(recording, limit === 0 ? 'lists' : 'paged lists');
  return revision;
}

export type WatchManner = 'steady' | 'slow' | 'reopening';

/** A client that watches the keys in one manner and records the events. */
export class Watcher {
  readonly #name: string;
  readonly #manner: WatchManner;
  readonly #api: Api;
  readonly #random: Random;
  readonly #recording: Recording;
  #segment: WatchSegment | undefined;
  #open: OpenWatch | undefined;

  constructor(name: string, manner: WatchManner, api: Api, random: Random, recording: Recording) {
    this.#name = name;
    this.#manner = manner;
    this.#api = api;
    this.#random = random;
    this.#recording = recording;
  }

  /** Whether the running watch has received an event of the key. */
  hasSeen(key: string): boolean {
    return this.#segment?.events.some((event) => event.key === key) === true;
  }

  async run(signal: AbortSignal): Promise<void> {
    signal.addEventListener('abort', () => this.#open?.close());
    while (!signal.aborted) {
      const segment = this.#segment ?? (await this.#begin());
      if (segment === undefined) await systemClock.sleep(100);
      else await this.#follow(segment, signal);
    }
  }

  async #begin(from?: number): Promise<WatchSegment | undefined> {
    const revision = from ?? (await list(this.#api, this.#recording, 0));
    if (revision === undefined) return undefined;
    this.#segment = { name: `${this.#name} (${this.#manner})`, from: revision, through: revision, events: [] };
    this.#recording.segments.push(this.#segment);
    return this.#segment;
  }

  /** Follows one connection until it ends. */
  async #follow(segment: WatchSegment, signal: AbortSignal): Promise<void> {
    let isGone = false;
    const path = `${PATH}?watch=1&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion=${segment.through}`;
    const { over, watch } = this.#api.watch(path, ({ type, object }) => {
      if (type === 'ERROR') {
        isGone = object.code === 410;
        count(this.#recording, isGone ? 'watches that expired' : 'watches with another error');
        return;
      }
      this.#show(segment, type, object);
    });
    this.#open = watch;
    if (signal.aborted) watch.close();
    const stop = new AbortController();
    const manner = this.#behave(watch, stop.signal);
    const status = await over;
    stop.abort();
    await manner;
    count(this.#recording, 'watches opened');
    if (isGone || status === 410) this.#segment = undefined;
    else if (this.#manner === 'reopening' && this.#random.next() < 0.3) await this.#begin(this.#earlier(segment));
    if (status !== 200 && !signal.aborted) await systemClock.sleep(50);
  }

  #show(segment: WatchSegment, type: string, object: ApiObject): void {
    const { revision, value } = versionOf(object);
    if (type === 'ADDED' || type === 'MODIFIED' || type === 'DELETED') {
      if (isOurs(object)) {
        segment.events.push({ type, key: object.metadata?.name ?? '', revision, value });
        count(this.#recording, 'events');
      }
    }
    segment.through = Math.max(segment.through, revision);
  }

  /** Returns an earlier revision of the watch, from which the events are received again. */
  #earlier({ from, events }: WatchSegment): number {
    return events.at(-this.#random.between(1, 50))?.revision ?? from;
  }

  async #behave(watch: OpenWatch, signal: AbortSignal): Promise<void> {
    while (this.#manner !== 'steady' && !signal.aborted) {
      await pause(this.#random.between(300, 3000), signal);
      if (this.#manner === 'reopening') watch.close();
      else {
        watch.pause();
        await pause(this.#random.between(300, 2000), signal);
        watch.resume();
      }
    }
  }
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await systemClock.sleep(ms, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}
