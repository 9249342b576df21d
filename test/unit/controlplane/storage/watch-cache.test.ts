/** Tests the watch cache: reads of the current and of earlier states, indexes, and watch events. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { silentLogger } from '../../../../api/component/logger.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { parseFieldSelector } from '../../../../api/meta/field-selector.ts';
import { selectorOfLabels } from '../../../../api/meta/selector.ts';
import type { WatchEvent, WatchHandle } from '../../../../controlplane/model/rest.ts';
import { openMemoryStorage } from '../../../../controlplane/storage/memory.ts';
import { encodeObject, parseObject, stampRevision } from '../../../../controlplane/storage/object-bytes.ts';
import { selectionOf, type Selection } from '../../../../controlplane/storage/selection.ts';
import { isStorageError, type Storage } from '../../../../controlplane/storage/storage.ts';
import { openWatchCache, type WatchCache } from '../../../../controlplane/storage/watch-cache.ts';
import type { CachedResource } from '../../../../controlplane/storage/cache-entry.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const PODS: CachedResource = {
  group: '',
  resource: 'pods',
  namespaced: true,
  fields: (object) => ({ 'spec.nodeName': (object as { spec?: { nodeName?: string } }).spec?.nodeName ?? '' }),
  indexedFields: ['spec.nodeName'],
};

class Fixture {
  readonly clock = new FakeClock();
  readonly storage: Storage = openMemoryStorage({ clock: this.clock, stamp: stampRevision });

  open(): Promise<WatchCache> {
    return openWatchCache({
      storage: this.storage,
      resource: PODS,
      clock: this.clock,
      logger: silentLogger,
      freeze: true,
    });
  }

  /** Writes the pod, whether it exists or not. With `undefined` labels, deletes it. Resolves to the revision. */
  async put(name: string, labels: Record<string, string> | undefined, nodeName = '', namespace = 'a'): Promise<number> {
    const key = `/core/pods/${namespace}/${name}`;
    const current = await this.storage.get(key);
    if (labels === undefined) return this.storage.delete(key, current?.revision ?? 0);
    const value = encodeObject({
      kind: 'Pod',
      apiVersion: 'v1',
      metadata: { name, namespace, labels },
      spec: { nodeName },
    });
    const stored =
      current === undefined ? this.storage.create(key, value) : this.storage.update(key, value, current.revision);
    return (await stored).revision;
  }
}

const everything = selectionOf('');
const byLabel = (labels: Record<string, string>, namespace = ''): Selection =>
  selectionOf(namespace, { labels: selectorOfLabels(labels) });
const byField = (text: string): Selection => selectionOf('', { fields: parseFieldSelector(text) });
const names = (cache: WatchCache, selection: Selection, revision?: number): string[] =>
  cache.list({ selection, ...(revision === undefined ? {} : { revision }) }).entries.map((entry) => entry.name);

class Recorder {
  readonly batches: (readonly WatchEvent[])[] = [];
  /** Requests a pause after each batch. */
  pausing = false;
  ended = false;

  onEvents(events: readonly WatchEvent[]): boolean {
    this.batches.push(events);
    return !this.pausing;
  }

  onEnd(): void {
    this.ended = true;
  }

  get shown(): string[] {
    return this.batches.flat().map((event) => {
      if (event.type === 'BOOKMARK') return `BOOKMARK ${event.resourceVersion}${event.initialEventsEnd ? ' end' : ''}`;
      if (event.type === 'ERROR') return `ERROR ${event.error.message}`;
      return `${event.type} ${event.entry.object.metadata.name}@${event.entry.object.metadata.resourceVersion}`;
    });
  }
}

interface Watching {
  readonly afterRevision?: number;
  readonly bookmarks?: boolean;
  readonly initialEventsEnd?: boolean;
}

function watch(cache: WatchCache, selection: Selection, options: Watching = {}) {
  const recorder = new Recorder();
  const { afterRevision, bookmarks = false, initialEventsEnd = false } = options;
  const handle = cache.watch({ selection, afterRevision, bookmarks, initialEventsEnd }, recorder);
  return { recorder, handle };
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

async function drain(recorder: Recorder, handle: WatchHandle): Promise<void> {
  for (let before = -1; before !== recorder.batches.length;) {
    before = recorder.batches.length;
    handle.resume();
    await settle();
  }
}

/** Whether no number is an integer beyond the precision of a double, which would have to be a bigint. */
function hasSafeNumbers(value: unknown): boolean {
  if (typeof value === 'number') return !Number.isInteger(value) || Number.isSafeInteger(value);
  return typeof value !== 'object' || value === null || Object.values(value).every(hasSafeNumbers);
}

describe('stored bytes', () => {
  it('take a revision and give it back, for any object', () => {
    const object = fc.record({
      kind: fc.string(),
      apiVersion: fc.string(),
      spec: fc.jsonValue().filter(hasSafeNumbers),
    });
    fc.assert(
      fc.property(
        object,
        fc.dictionary(fc.string(), fc.string()),
        fc.nat(),
        fc.nat(),
        (body, annotations, first, second) => {
          const given = { ...body, metadata: { name: 'n', annotations } } as unknown as KubeObject;
          const twice = stampRevision(stampRevision(encodeObject(given), first), second);
          const expected = { ...given, metadata: { ...given.metadata, resourceVersion: String(second) } };
          assert.deepEqual(parseObject(twice), JSON.parse(JSON.stringify(expected)));
        },
      ),
    );
  });

  it('keep 64-bit integers', () => {
    const object = {
      kind: 'K',
      apiVersion: 'v1',
      metadata: { name: 'n' },
      spec: { big: 9223372036854775807n, text: ':12345678901234567890' },
    };
    assert.deepEqual(parseObject(encodeObject(object)), object);
  });
});

describe('the watch cache: reads', () => {
  it('gives objects with their revision, labels and fields', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const revision = await fixture.put('p', { app: 'x' }, 'n1');
    const entry = cache.get('a', 'p');
    assert.deepEqual(
      [entry?.namespace, entry?.name, entry?.revision, { ...entry?.labels }],
      ['a', 'p', revision, { app: 'x' }],
    );
    assert.equal(entry?.object.metadata.resourceVersion, String(revision));
    assert.ok(Object.isFrozen(entry?.object.metadata.labels));
    assert.equal(cache.get('b', 'p'), undefined);
  });

  it('lists by namespace, in order, in pages that say how much is left', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    for (const name of ['c', 'a', 'b']) await fixture.put(name, {});
    await fixture.put('other', {}, '', 'a-b');
    assert.deepEqual(names(cache, selectionOf('a')), ['a', 'b', 'c']);
    const page = cache.list({ selection: selectionOf('a'), limit: 2 });
    assert.deepEqual([page.entries.map((entry) => entry.name), page.more, page.remaining], [['a', 'b'], true, 1]);
    const rest = cache.list({ selection: selectionOf('a'), limit: 2, startAfter: page.entries[1]?.key ?? '' });
    assert.deepEqual([rest.entries.map((entry) => entry.name), rest.more, rest.remaining], [['c'], false, undefined]);
    assert.equal(cache.list({ selection: byLabel({}, 'a'), limit: 1 }).more, true);
    assert.equal(cache.list({ selection: selectionOf('a'), limit: 3 }).more, false);
    assert.equal(cache.count('a'), 3);
  });

  it('has another page after a full one as long as objects follow, whether they are selected or not', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    for (const name of ['a', 'b']) await fixture.put(name, name === 'a' ? { color: 'red' } : {});
    const red = cache.list({ selection: byLabel({ color: 'red' }), limit: 1 });
    assert.deepEqual([red.entries.map(({ name }) => name), red.more, red.remaining], [['a'], true, undefined]);
    const after = { selection: byLabel({ color: 'red' }), limit: 1, startAfter: red.entries[0]?.key ?? '' };
    assert.deepEqual([cache.list(after).entries, cache.list(after).more], [[], false]);
  });

  it('selects the same with and without an index, while objects change', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const all = new Map<string, { color: string; node: string }>();
    for (let step = 0; step < 1500; step += 1) {
      const name = `p${(step * 7919) % 600}`;
      const [color, node] = [`c${step % 7}`, `n${step % 11}`];
      if (step % 13 === 12 && all.has(name)) {
        all.delete(name);
        await fixture.put(name, undefined);
      } else {
        all.set(name, { color, node });
        await fixture.put(name, { color }, node);
      }
      if (step % 100 !== 99) continue;
      const expected = (test: (one: { color: string; node: string }) => boolean): string[] =>
        [...all]
          .filter(([, one]) => test(one))
          .map(([one]) => one)
          .sort();
      assert.deepEqual(
        names(cache, byLabel({ color: 'c3' })),
        expected((one) => one.color === 'c3'),
      );
      assert.deepEqual(
        names(cache, byField('spec.nodeName=n5')),
        expected((one) => one.node === 'n5'),
      );
    }
  });

  it('shows any revision that history still holds, and refuses others', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const states = new Map<number, string[]>();
    for (const [name, labels] of [
      ['a', {}],
      ['b', {}],
      ['a', { x: '1' }],
      ['b', undefined],
      ['c', {}],
      ['b', {}],
    ] as const) {
      const revision = await fixture.put(name, labels);
      states.set(revision, names(cache, everything));
    }
    const fresh = await fixture.open();
    for (const [revision, expected] of states) {
      assert.deepEqual(names(cache, everything, revision), expected);
      assert.deepEqual(names(fresh, everything, revision), expected);
    }
    const [first = 0, second = 0] = states.keys();
    await fixture.storage.compact(second);
    assert.throws(
      () => names(cache, everything, first),
      (error) => isStorageError(error, 'compacted'),
    );
    assert.throws(
      () => names(cache, everything, cache.revision() + 1),
      (error) => isStorageError(error, 'future-revision'),
    );
  });

  it('lists nothing at revision 1 until the first compaction, and no watch begins there', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    await fixture.put('a', {});
    const b = await fixture.put('b', {});
    assert.deepEqual(names(cache, everything, 1), []);
    assert.equal(cache.list({ selection: everything, revision: 1 }).revision, 1);
    const isCompacted = (error: unknown): boolean => isStorageError(error, 'compacted');
    assert.throws(() => watch(cache, everything, { afterRevision: 1 }), isCompacted);
    await fixture.storage.compact(b);
    assert.throws(() => names(cache, everything, 1), isCompacted);
  });

  it('waits for a revision, but not for ever', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const waiting = cache.waitFor(cache.revision() + 1);
    await fixture.put('a', {});
    await waiting;
    const late = assert.rejects(cache.waitFor(cache.revision() + 1), (error) =>
      isStorageError(error, 'future-revision'),
    );
    await fixture.clock.advance(3000);
    await late;
  });

  it('does not wait if the caller is gone or the storage is closed, and leaves no timer', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const gone = AbortSignal.abort(new Error('the client is gone'));
    await assert.rejects(cache.waitFor(cache.revision() + 1, { signal: gone }), /the client is gone/);
    await fixture.storage.close();
    const timers = fixture.clock.pendingTimers;
    await assert.rejects(cache.waitFor(cache.revision() + 1), (error) => isStorageError(error, 'closed'));
    assert.equal(fixture.clock.pendingTimers, timers);
  });
});

describe('the watch cache: caches of one resource after each other', () => {
  it('a later cache reads fields by its own definition, from the same versions', async () => {
    const fixture = new Fixture();
    const { storage, clock } = fixture;
    const open = (field: string): Promise<WatchCache> =>
      openWatchCache({
        storage,
        resource: { ...PODS, fields: () => ({ 'spec.nodeName': field }), indexedFields: [] },
        clock,
        logger: silentLogger,
      });
    const before = await open('old');
    await fixture.put('a', {});
    const entry = before.get('a', 'a');
    assert.deepEqual(names(before, byField('spec.nodeName=old')), ['a']);
    before.close();
    const after = await open('new');
    assert.deepEqual(names(after, byField('spec.nodeName=new')), ['a']);
    assert.notEqual(after.get('a', 'a'), entry);
    assert.equal(after.get('a', 'a'), after.get('a', 'a'), 'one entry for all readers');
    assert.equal(after.get('a', 'a')?.bytes, entry?.bytes);
  });

  it('two caches at the same time each have one entry an object, and indexes that follow it', async () => {
    const fixture = new Fixture();
    const [one, other] = [await fixture.open(), await fixture.open()];
    for (let at = 0; at < 250; at += 1) await fixture.put(`p${at}`, {}, 'n');
    for (const cache of [one, other]) assert.equal(names(cache, byField('spec.nodeName=n')).length, 250);
    await fixture.put('p0', {}, 'm');
    await fixture.put('p1', undefined);
    for (const cache of [one, other]) {
      assert.equal(cache.get('a', 'p5'), cache.get('a', 'p5'));
      assert.equal(names(cache, byField('spec.nodeName=n')).length, 248);
      assert.deepEqual(names(cache, byField('spec.nodeName=m')), ['p0']);
    }
  });
});

describe('the watch cache: what fails in delivery', { timeout: 10_000 }, () => {
  for (const moment of ['at its first events', 'at a commit', 'at a bookmark'] as const) {
    it(`a sink that throws ${moment} loses its own watch with an ERROR event`, async () => {
      const fixture = new Fixture();
      const cache = await fixture.open();
      await fixture.put('a', {});
      const other = watch(cache, everything);
      const shown: string[] = [];
      let ended = false;
      let calls = 0;
      const failsAt = moment === 'at its first events' ? 1 : 2;
      cache.watch(
        { selection: everything, afterRevision: undefined, bookmarks: true, initialEventsEnd: false },
        {
          onEvents(events) {
            shown.push(...events.map(({ type }) => type));
            calls += 1;
            if (calls === failsAt) throw new TypeError('an encoder failed');
            return true;
          },
          onEnd: () => (ended = true),
        },
      );
      await settle();
      // The object belongs to another resource, so only the revision of the storage changes.
      if (moment === 'at a commit') await fixture.put('b', {});
      if (moment === 'at a bookmark') {
        await fixture.storage.create('/core/other/x', Buffer.from('{"kind":"O","apiVersion":"v1","metadata":{}}'));
        await fixture.clock.advance(61_000);
      }
      assert.equal(shown.at(-1), 'ERROR');
      assert.equal(ended, true);
      const revision = await fixture.put('c', {});
      assert.equal(other.recorder.shown.at(-1), `ADDED c@${revision}`);
      assert.equal(shown.at(-1), 'ERROR', 'nothing follows the error');
    });
  }

  it('a selection that throws closes the watches that have it, and no other', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const failing: Selection = {
      ...byLabel({ a: 'b' }),
      matches: (entry) => {
        if (entry.name === 'bad') throw new Error('the selector failed');
        return true;
      },
    };
    const [first, second, other] = [watch(cache, failing), watch(cache, failing), watch(cache, everything)];
    await settle();
    const bad = await fixture.put('bad', { a: 'b' });
    const good = await fixture.put('good', { a: 'b' });
    assert.deepEqual([first.recorder.ended, second.recorder.ended], [true, true]);
    assert.deepEqual(other.recorder.shown, [`ADDED bad@${bad}`, `ADDED good@${good}`]);
  });

  it('fields that cannot be read close the watches that select by them; reads by name and writes go on', async () => {
    const fixture = new Fixture();
    const resource: CachedResource = {
      ...PODS,
      fields: (object) => {
        if (object.metadata.name === 'bad') throw new Error('no such field');
        return { 'spec.nodeName': 'n' };
      },
    };
    const { storage, clock } = fixture;
    const cache = await openWatchCache({ storage, resource, clock, logger: silentLogger });
    for (let at = 0; at < 250; at += 1) await fixture.put(`p${at}`, {});
    cache.list({ selection: byField('spec.nodeName=n') });
    const selected = watch(cache, byField('spec.nodeName=n'));
    const other = watch(cache, selectionOf('a'));
    await settle();
    await fixture.put('bad', {});
    await fixture.put('good', {});
    assert.equal(selected.recorder.ended, true);
    assert.equal(other.recorder.ended, false);
    assert.equal(cache.get('a', 'bad')?.name, 'bad');
    assert.equal(cache.get('a', 'good')?.name, 'good');
  });
});

describe('the watch cache: watches', () => {
  it('sends existing objects, a bookmark, and then every change', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const a = await fixture.put('a', {});
    const { recorder } = watch(cache, everything, { initialEventsEnd: true, bookmarks: true });
    await settle();
    const b = await fixture.put('b', {});
    const gone = await fixture.put('a', undefined);
    assert.deepEqual(recorder.shown, [`ADDED a@${a}`, `BOOKMARK ${a} end`, `ADDED b@${b}`, `DELETED a@${gone}`]);
  });

  it('turns what enters and leaves a selection into ADDED and DELETED', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const labelled = watch(cache, byLabel({ v: '1' }));
    const onNode = watch(cache, byField('spec.nodeName=n'));
    await settle();
    const [r1, r2, r3, r4] = [
      await fixture.put('p', { v: '1' }),
      await fixture.put('p', { v: '1' }, 'n'),
      await fixture.put('p', { v: '2' }, 'n'),
      await fixture.put('p', { v: '2' }, 'm'),
    ];
    assert.deepEqual(labelled.recorder.shown, [`ADDED p@${r1}`, `MODIFIED p@${r2}`, `DELETED p@${r3}`]);
    assert.deepEqual(onNode.recorder.shown, [`ADDED p@${r2}`, `MODIFIED p@${r3}`, `DELETED p@${r4}`]);
    const last = labelled.recorder.batches.at(-1)?.[0];
    assert.deepEqual(last?.type === 'DELETED' && last.entry.object.metadata.labels, { v: '1' });
  });

  it('begins at a past revision, also in a cache that was opened later', async () => {
    const fixture = new Fixture();
    const a = await fixture.put('a', {});
    const b = await fixture.put('b', {});
    const a2 = await fixture.put('a', { x: '1' });
    const cache = await fixture.open();
    const { recorder } = watch(cache, everything, { afterRevision: a });
    await settle();
    assert.deepEqual(recorder.shown, [`ADDED b@${b}`, `MODIFIED a@${a2}`]);
    await fixture.storage.compact(b);
    assert.throws(
      () => watch(cache, everything, { afterRevision: a }),
      (error) => isStorageError(error, 'compacted') && error.message === `too old resource version: ${a} (${b})`,
    );
  });

  it('begins after a revision in the middle of a commit that equal watches received', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const { recorder: first } = watch(cache, everything, { afterRevision: cache.revision() });
    await settle();
    const revisions = await Promise.all(['p', 'q', 'r'].map((name) => fixture.put(name, {})));
    await settle();
    assert.equal(first.batches.length, 1);
    const { recorder } = watch(cache, everything, { afterRevision: revisions[0] ?? 0 });
    await settle();
    assert.deepEqual(recorder.shown, first.shown.slice(1));
  });

  it('gives one batch to all watches of equal selections', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const [one, two] = [watch(cache, byLabel({ v: '1' })), watch(cache, byLabel({ v: '1' }))];
    await settle();
    await fixture.put('a', { v: '1' });
    assert.equal(one.recorder.batches[0], two.recorder.batches[0]);
    assert.equal(one.recorder.batches.length, 1);
  });

  it('a slow watch loses no events and does not delay other watches', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const slow = watch(cache, byLabel({ v: '1' }));
    const fast = watch(cache, byLabel({ v: '1' }));
    await settle();
    slow.recorder.pausing = true;
    // This is more than the number of batches that are kept for slow watches.
    for (let i = 0; i < 700; i += 1) await fixture.put(`p${i % 10}`, { v: String(i % 3) });
    assert.equal(slow.recorder.batches.length, 1);
    assert.ok(fast.recorder.batches.length > 100);
    await drain(slow.recorder, slow.handle);
    assert.deepEqual(slow.recorder.shown, fast.recorder.shown);
    slow.recorder.pausing = false;
    await drain(slow.recorder, slow.handle);
    await fixture.put('last', { v: '1' });
    assert.deepEqual(slow.recorder.shown, fast.recorder.shown);
  });

  it('a watch that falls behind history ends, and only that one', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const slow = watch(cache, everything);
    const fast = watch(cache, everything);
    await settle();
    slow.recorder.pausing = true;
    const first = await fixture.put('a', {});
    await fixture.put('b', {});
    const last = await fixture.put('c', {});
    await fixture.storage.compact(last);
    slow.handle.resume();
    assert.deepEqual(slow.recorder.shown.slice(1), [`ERROR too old resource version: ${first} (${last})`]);
    assert.deepEqual([slow.recorder.ended, fast.recorder.ended], [true, false]);
  });

  it('sends bookmarks on request, about once a minute if there is a newer revision', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const { recorder, handle } = watch(cache, byLabel({ v: '1' }), { bookmarks: true });
    await settle();
    await fixture.clock.advance(61_000);
    assert.deepEqual(recorder.shown, []);
    const revision = await fixture.put('other', {});
    await fixture.clock.advance(61_000);
    assert.deepEqual(recorder.shown, [`BOOKMARK ${revision}`]);
    await fixture.clock.advance(61_000);
    const later = await fixture.put('other', { x: '1' });
    handle.bookmark();
    handle.bookmark();
    assert.deepEqual(recorder.shown, [`BOOKMARK ${revision}`, `BOOKMARK ${later}`]);
  });

  it('a closed watch is shown nothing, and closing the cache ends the others', async () => {
    const fixture = new Fixture();
    const cache = await fixture.open();
    const [closed, open] = [watch(cache, everything), watch(cache, everything)];
    await settle();
    closed.handle.close();
    await fixture.put('a', {});
    cache.close();
    assert.deepEqual([closed.recorder.batches.length, open.recorder.batches.length], [0, 1]);
    assert.deepEqual([closed.recorder.ended, open.recorder.ended], [false, true]);
  });
});
