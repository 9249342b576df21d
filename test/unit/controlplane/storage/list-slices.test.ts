/** Lists with selectors that have many objects to read: others are served meanwhile, and a list shows one state. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { parseFieldSelector } from '../../../../api/meta/field-selector.ts';
import { selectorOfLabels } from '../../../../api/meta/selector.ts';
import { leaseCache } from '../../../../controlplane/registry/custom-resources/leased-cache.ts';
import type { WatchEvent } from '../../../../controlplane/model/rest.ts';
import { openMemoryStorage } from '../../../../controlplane/storage/memory.ts';
import { encodeObject, stampRevision } from '../../../../controlplane/storage/object-bytes.ts';
import { selectionOf, type Selection } from '../../../../controlplane/storage/selection.ts';
import { isStorageError, type Storage } from '../../../../controlplane/storage/storage.ts';
import type { CacheList } from '../../../../controlplane/storage/cache-list.ts';
import { openWatchCache, type WatchCache } from '../../../../controlplane/storage/watch-cache.ts';
import type { CachedResource } from '../../../../controlplane/storage/cache-entry.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

type Spec = Readonly<Record<string, string>>;
const specOf = (object: object): Spec => (object as { readonly spec: Spec }).spec;
const PODS: CachedResource = {
  group: '',
  resource: 'pods',
  namespaced: true,
  fields: (object) => ({ 'spec.nodeName': specOf(object)['node'] ?? '', 'spec.phase': specOf(object)['phase'] ?? '' }),
  indexedFields: ['spec.nodeName'],
};
const OBJECTS = 600;

/** Each reading of the clock takes a millisecond, so that a slice ends after some objects. */
class TickingClock extends FakeClock {
  #readings = 0;

  override monotonic(): number {
    this.#readings += 1;
    return this.#readings;
  }
}

const nameOf = (at: number): string => `p${String(at).padStart(4, '0')}`;

class Pods {
  readonly clock = new TickingClock();
  readonly storage: Storage = openMemoryStorage({ clock: this.clock, stamp: stampRevision });
  readonly #revisions = new Map<string, number>();

  async write(name: string, spec: Spec): Promise<void> {
    const key = `/core/pods/a/${name}`;
    const labels = { phase: spec['phase'] ?? '' };
    const value = encodeObject({ kind: 'Pod', apiVersion: 'v1', metadata: { name, namespace: 'a', labels }, spec });
    const known = this.#revisions.get(name);
    const stored = known === undefined ? this.storage.create(key, value) : this.storage.update(key, value, known);
    this.#revisions.set(name, (await stored).revision);
  }

  async remove(name: string): Promise<void> {
    await this.storage.delete(`/core/pods/a/${name}`, this.#revisions.get(name) ?? 0);
    this.#revisions.delete(name);
  }

  /** Resolves to a cache of pods of which every second one matches. */
  async cache(): Promise<WatchCache> {
    const cache = await openWatchCache({
      storage: this.storage,
      resource: PODS,
      clock: this.clock,
      logger: silentLogger,
    });
    const pods = Array.from({ length: OBJECTS }, (_, at) => at);
    await Promise.all(pods.map((at) => this.write(nameOf(at), at % 2 === 0 ? WANTED : OTHER)));
    return cache;
  }

  /** Changes pods while a list is made: pods at its beginning and its end stop to match, begin to match, go and come. */
  async change(): Promise<void> {
    for (const at of [0, 2, OBJECTS - 2]) await this.write(nameOf(at), OTHER);
    for (const at of [1, 3, OBJECTS - 1]) await this.write(nameOf(at), WANTED);
    for (const at of [4, 300, OBJECTS - 4]) await this.remove(nameOf(at));
    for (const name of ['a', 'p0300a', 'z']) await this.write(name, WANTED);
  }
}

const WANTED: Spec = { node: 'n', phase: 'Running' };
const OTHER: Spec = { node: 'm', phase: 'Pending' };
const byField = (text: string): Selection => selectionOf('', { fields: parseFieldSelector(text) });
const SELECTIONS: readonly (readonly [string, Selection])[] = [
  ['a field without an index', byField('spec.phase=Running')],
  ['a field with an index', byField('spec.nodeName=n')],
  ['a label', selectionOf('', { labels: selectorOfLabels({ phase: 'Running' }) })],
];
const names = ({ entries }: Pick<CacheList, 'entries'>): string[] => entries.map(({ name }) => name);

/** Counts the turns of the event loop until the list is there. `between` runs in the first of them. */
async function turnsOf<Result>(
  listed: Promise<Result> | Result,
  between: () => Promise<void>,
): Promise<{ readonly result: Result; readonly turns: number }> {
  let [turns, isCounting] = [0, true];
  const count = (): void => {
    turns += 1;
    if (isCounting) setImmediate(count);
  };
  setImmediate(count);
  await between();
  const result = await listed;
  isCounting = false;
  return { result, turns };
}

describe('a list with a selector that must read many objects', { timeout: 30_000 }, () => {
  for (const [what, selection] of SELECTIONS) {
    it(`gives the event loop back and shows one state: ${what}`, async () => {
      const pods = new Pods();
      const cache = await pods.cache();
      const listed = cache.listInSlices({ selection });
      const { result, turns } = await turnsOf(listed, () => pods.change());
      if (selection !== SELECTIONS[1]?.[1]) assert.ok(turns >= 20, `${turns} turns of the event loop`);
      const then = cache.list({ selection, revision: result.revision });
      assert.deepEqual(names(result), names(then));
      assert.ok(result.entries.length > 200);
      assert.ok(result.entries.every((entry, at) => entry.revision === then.entries[at]?.revision));
    });

    it(`shows one state of the past: ${what}`, async () => {
      const pods = new Pods();
      const cache = await pods.cache();
      const revision = cache.revision();
      const expected = names(cache.list({ selection: selectionOf('') })).filter((_, at) => at % 2 === 0);
      await pods.change();
      const listed = cache.listInSlices({ selection, revision });
      const { result } = await turnsOf(listed, () => pods.write('later', WANTED));
      assert.deepEqual(names(result), expected);
    });

    it(`has pages of one state: ${what}`, async () => {
      const pods = new Pods();
      const cache = await pods.cache();
      const found: string[] = [];
      let page = await cache.listInSlices({ selection, limit: 70 });
      const { revision } = page;
      await pods.change();
      for (;;) {
        found.push(...names(page));
        if (!page.more) break;
        const startAfter = page.entries.at(-1)?.key ?? '';
        page = await cache.listInSlices({ selection, limit: 70, startAfter, revision });
      }
      assert.deepEqual(found, names(cache.list({ selection, revision })));
    });
  }

  it('fills an index in slices, and finds what changed meanwhile', async () => {
    const pods = new Pods();
    const cache = await pods.cache();
    // A label is indexed when it is used for the second time.
    const selection = selectionOf('', { labels: selectorOfLabels({ phase: 'Running' }) });
    cache.list({ selection });
    const { result } = await turnsOf(cache.listInSlices({ selection }), () => pods.change());
    assert.deepEqual(names(result), names(cache.list({ selection, revision: result.revision })));
    assert.deepEqual(names(cache.list({ selection })), names(await cache.listInSlices({ selection })));
  });

  it('ends at its next pause where the client is gone', async () => {
    const cache = await new Pods().cache();
    const client = new AbortController();
    const listed = cache.listInSlices({ selection: byField('spec.phase=Running') }, client.signal);
    client.abort(new Error('gone'));
    await assert.rejects(async () => listed, /gone/);
  });

  it('is a plain result where one slice is enough', async () => {
    const cache = leaseCache(await new Pods().cache(), 0).cache;
    assert.ok(!(cache.listInSlices({ selection: selectionOf('') }) instanceof Promise));
    assert.ok(!(cache.listInSlices({ selection: selectionOf('a', { name: nameOf(1) }) }) instanceof Promise));
  });

  it('refuses a compacted state before it reads', async () => {
    const pods = new Pods();
    const cache = await pods.cache();
    await pods.storage.compact(pods.storage.revision());
    const selection = byField('spec.nodeName=n');
    assert.throws(
      () => cache.listInSlices({ selection, revision: 1 }),
      (error) => isStorageError(error, 'compacted'),
    );
  });
});

describe('a watch of objects that were listed in slices', { timeout: 30_000 }, () => {
  it('continues with every change since the list', async () => {
    const pods = new Pods();
    const cache = await pods.cache();
    const selection = byField('spec.phase=Running');
    const { result: existing } = await turnsOf(cache.listInSlices({ selection }), () => pods.change());
    const known = new Map<string, string | undefined>();
    const sink = {
      onEvents(events: readonly WatchEvent[]): boolean {
        for (const event of events) {
          if (!('entry' in event)) continue;
          const { name = '', resourceVersion } = event.entry.object.metadata;
          if (event.type === 'DELETED') known.delete(name);
          else known.set(name, resourceVersion);
        }
        return true;
      },
      onEnd: () => undefined,
    };
    const handle = cache.watch(
      { selection, existing, afterRevision: undefined, bookmarks: false, initialEventsEnd: false },
      sink,
    );
    await pods.write(nameOf(8), OTHER);
    const expected = cache.list({ selection });
    await turnsOf(undefined, () => new Promise((resolve) => setTimeout(resolve, 20)));
    handle.close();
    assert.deepEqual(
      [...known].sort(([a], [b]) => (a < b ? -1 : 1)),
      expected.entries.map(({ name, revision }) => [name, String(revision)]),
    );
  });
});
