/** Tests the contract of storage backends. `storage-*.test.ts` runs it for each of them. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isStorageError, type Storage, type StorageErrorCode } from '../../controlplane/storage/storage.ts';
import type { VersionChange } from '../../controlplane/storage/resource-versions.ts';
import { FakeClock } from '../fakes/fake-clock.ts';

export interface StorageUnderTest {
  readonly storage: Storage;
  readonly clock: FakeClock;
  /** How soon a key expires in tests. The default is a minute of the clock. Storages with a clock of their own need less. */
  readonly lifeMs?: number;
  /** Closes the storage and opens it again with its data. Absent if the storage keeps no data. */
  reopen?(): Promise<StorageUnderTest>;
  dispose(): Promise<void>;
}

const bytes = (text: string): Buffer => Buffer.from(text);
const failsWith = (code: StorageErrorCode) => (error: unknown) => isStorageError(error, code);

function record(storage: Storage, prefix: string, afterRevision = storage.revision()) {
  const events: VersionChange[] = [];
  let ended = false;
  const watch = storage.watch(
    { prefix, afterRevision },
    { onEvents: (batch) => void events.push(...batch), onEnd: () => void (ended = true) },
  );
  const shown = (): string[] =>
    events.map(({ key, current, previous }) =>
      current === undefined ? `delete ${key}` : `${previous === undefined ? 'create' : 'update'} ${key}`,
    );
  return { events, shown, watch, isEnded: () => ended };
}

/** Declares the tests of the contract. Each of them calls `open` for a storage of its own. */
export function storageContract(name: string, open: () => Promise<StorageUnderTest>): void {
  const with_ = (requirement: string, test: (under: StorageUnderTest) => Promise<void>): void => {
    it(requirement, async () => {
      const under = await open();
      try {
        await test(under);
      } finally {
        await under.dispose();
      }
    });
  };
  describe(`storage: ${name}`, () => {
    writes(with_);
    lists(with_);
    watches(with_);
    history(with_);
    restarts(with_);
  });
}

type With = (requirement: string, test: (under: StorageUnderTest) => Promise<void>) => void;

function writes(with_: With): void {
  with_('a created key can be read, with one revision for creation and last write', async ({ storage }) => {
    const created = await storage.create('/core/x/a', bytes('1'));
    assert.equal(created.createRevision, created.revision);
    assert.equal(storage.revision(), created.revision);
    assert.equal((await storage.get('/core/x/a'))?.value.toString(), '1');
  });
  with_('a key is created once, and the error holds what is there', async ({ storage }) => {
    const first = await storage.create('/core/x/a', bytes('1'));
    await assert.rejects(storage.create('/core/x/a', bytes('2')), (error) => {
      assert.ok(isStorageError(error, 'exists'));
      return error.current?.revision === first.revision;
    });
  });
  with_('of creations of one key at the same time one succeeds', async ({ storage }) => {
    const results = await Promise.allSettled(
      Array.from({ length: 20 }, (_, i) => storage.create('/core/x/a', bytes(`${i}`))),
    );
    assert.equal(results.filter((one) => one.status === 'fulfilled').length, 1);
    assert.ok(results.every((one) => one.status === 'fulfilled' || isStorageError(one.reason, 'exists')));
  });
  with_('an update needs the current revision', async ({ storage }) => {
    const first = await storage.create('/core/x/a', bytes('1'));
    const second = await storage.update('/core/x/a', bytes('2'), first.revision);
    assert.ok(second.revision > first.revision);
    assert.equal(second.createRevision, first.createRevision);
    await assert.rejects(storage.update('/core/x/a', bytes('3'), first.revision), (error) => {
      assert.ok(isStorageError(error, 'conflict'));
      return error.current?.value.toString() === '2';
    });
    await assert.rejects(storage.update('/core/x/b', bytes('3'), first.revision), failsWith('not-found'));
  });
  with_('of updates from one revision at the same time one succeeds', async ({ storage }) => {
    const first = await storage.create('/core/x/a', bytes('0'));
    const results = await Promise.allSettled(
      Array.from({ length: 20 }, (_, i) => storage.update('/core/x/a', bytes(`${i}`), first.revision)),
    );
    assert.equal(results.filter((one) => one.status === 'fulfilled').length, 1);
  });
  with_('a deletion needs the current revision and has one of its own', async ({ storage }) => {
    const first = await storage.create('/core/x/a', bytes('1'));
    await assert.rejects(storage.delete('/core/x/a', first.revision + 1), failsWith('conflict'));
    assert.ok((await storage.delete('/core/x/a', first.revision)) > first.revision);
    assert.equal(await storage.get('/core/x/a'), undefined);
    await assert.rejects(storage.delete('/core/x/a', first.revision), failsWith('not-found'));
    const again = await storage.create('/core/x/a', bytes('2'));
    assert.equal(again.createRevision, again.revision);
  });
  with_('the writes of a transaction are all stored, or none is', async ({ storage }) => {
    const seen = record(storage, '/core/');
    const transactionWrites = [{ key: '/core/y/1', value: bytes('side') }];
    const first = await storage.create('/core/x/a', bytes('1'), { transactionWrites });
    assert.equal((await storage.get('/core/y/1'))?.value.toString(), 'side');
    await assert.rejects(storage.create('/core/x/b', bytes('2'), { transactionWrites }), failsWith('occupied'));
    await assert.rejects(
      storage.create('/core/x/a', bytes('2'), { transactionWrites: [{ key: '/core/y/2', value: bytes('side') }] }),
      failsWith('exists'),
    );
    await assert.rejects(
      storage.update('/core/x/a', bytes('2'), first.revision + 9, {
        transactionWrites: [{ key: '/core/y/1', value: undefined }],
      }),
      failsWith('conflict'),
    );
    const second = await storage.update('/core/x/a', bytes('2'), first.revision, {
      transactionWrites: [
        { key: '/core/y/1', value: undefined },
        { key: '/core/y/3', value: bytes('side') },
        { key: '/core/y/never-there', value: undefined },
      ],
    });
    await storage.delete('/core/x/a', second.revision, [{ key: '/core/y/3', value: undefined }]);
    assert.deepEqual((await storage.list('/core/')).items, []);
    assert.deepEqual(seen.shown(), [
      'create /core/x/a',
      'create /core/y/1',
      'update /core/x/a',
      'delete /core/y/1',
      'create /core/y/3',
      'delete /core/x/a',
      'delete /core/y/3',
    ]);
  });
  with_('of concurrent transactions that create one key, one succeeds', async ({ storage }) => {
    const transactionWrites = [{ key: '/core/y/1', value: bytes('side') }];
    const results = await Promise.allSettled([
      ...Array.from({ length: 10 }, (_, i) => storage.create(`/core/x/${i}`, bytes('1'), { transactionWrites })),
      storage.create('/core/y/1', bytes('by itself')),
    ]);
    assert.equal(results.filter((one) => one.status === 'fulfilled').length, 1);
    const isByItself = results.at(-1)?.status === 'fulfilled';
    assert.equal((await storage.list('/core/')).items.length, isByItself ? 1 : 2);
  });
  with_('revisions of concurrent writes are all different and increase', async ({ storage }) => {
    const before = storage.revision();
    const stored = await Promise.all(
      Array.from({ length: 200 }, (_, i) => storage.create(`/core/x/${i}`, bytes(`${i}`))),
    );
    const revisions = new Set(stored.map((one) => one.revision));
    assert.equal(revisions.size, 200);
    assert.ok(Math.min(...revisions) > before);
    assert.equal(storage.revision(), Math.max(...revisions));
  });
  with_(
    'a key goes by itself when its time has come, unless it was written again',
    async ({ storage, clock, lifeMs = 60_000 }) => {
      const expiresAtMs = clock.now() + lifeMs;
      await storage.create('/core/events/a', bytes('1'), { expiresAtMs });
      const kept = await storage.create('/core/events/b', bytes('1'), { expiresAtMs });
      await storage.update('/core/events/b', bytes('2'), kept.revision, { expiresAtMs: expiresAtMs + 3_600_000 });
      const { events, shown } = record(storage, '/core/events/');
      await clock.advance(120_000);
      while (events.length === 0) await new Promise((resolve) => setImmediate(resolve));
      assert.deepEqual(shown(), ['delete /core/events/a']);
    },
  );
  with_('a closed storage takes nothing, after finishing what it had taken', async ({ storage }) => {
    const write = storage.create('/core/x/a', bytes('1'));
    await Promise.all([write, storage.close()]);
    await assert.rejects(storage.create('/core/x/b', bytes('1')), failsWith('closed'));
  });
}

function lists(with_: With): void {
  with_('lists are ordered by key and hold their prefix only', async ({ storage }) => {
    for (const key of ['/core/x/b', '/core/xy/a', '/core/x/a', '/core/x/c', '/apps/x/a'])
      await storage.create(key, bytes(key));
    const list = await storage.list('/core/x/');
    assert.deepEqual(
      list.items.map((item) => item.key),
      ['/core/x/a', '/core/x/b', '/core/x/c'],
    );
    assert.equal(list.revision, storage.revision());
    assert.equal(list.remaining, 0);
  });
  with_('pages together are the list, whatever their size', async ({ storage }) => {
    await Promise.all(
      Array.from({ length: 1200 }, (_, i) => storage.create(`/core/x/${(i * 7919) % 1200}`, bytes(`${i}`))),
    );
    const all = (await storage.list('/core/x/')).items.map((item) => item.key);
    assert.deepEqual(all, [...all].sort());
    for (const limit of [1, 511, 512, 513, 5000]) {
      const keys: string[] = [];
      for (let left = 1, startAfter = ''; left > 0; startAfter = keys.at(-1) ?? '') {
        const page = await storage.list('/core/x/', { limit, startAfter });
        keys.push(...page.items.map((item) => item.key));
        left = page.remaining;
        assert.equal(keys.length + left, 1200);
        if (limit === 1 && keys.length > 20) break;
      }
      assert.deepEqual(keys, all.slice(0, keys.length));
    }
  });
  with_('a past revision shows what was there then', async ({ storage }) => {
    const a = await storage.create('/core/x/a', bytes('1'));
    const b = await storage.create('/core/x/b', bytes('1'));
    const then = storage.revision();
    await storage.update('/core/x/a', bytes('2'), a.revision);
    await storage.delete('/core/x/b', b.revision);
    await storage.create('/core/x/c', bytes('1'));
    const list = await storage.list('/core/x/', { revision: then });
    assert.deepEqual(
      list.items.map((item) => `${item.key}=${item.value}`),
      ['/core/x/a=1', '/core/x/b=1'],
    );
    assert.equal((await storage.get('/core/x/b', { revision: then }))?.value.toString(), '1');
    assert.equal(await storage.get('/core/x/c', { revision: then }), undefined);
    const page = await storage.list('/core/x/', { revision: then, limit: 1 });
    assert.deepEqual([page.items.length, page.remaining], [1, 1]);
    await assert.rejects(storage.list('/core/x/', { revision: storage.revision() + 1 }), failsWith('future-revision'));
  });
}

function watches(with_: With): void {
  with_('a watch shows every change of its prefix once, in order, before the write returns', async ({ storage }) => {
    const { events, shown } = record(storage, '/core/x/');
    const a = await storage.create('/core/x/a', bytes('1'));
    assert.equal(events.length, 1);
    await storage.create('/core/y/a', bytes('1'));
    const second = await storage.update('/core/x/a', bytes('2'), a.revision);
    await storage.delete('/core/x/a', second.revision);
    assert.deepEqual(shown(), ['create /core/x/a', 'update /core/x/a', 'delete /core/x/a']);
    const [, update, deletion] = events;
    assert.equal(update?.previous?.value.toString(), '1');
    assert.equal(deletion?.current === undefined && deletion?.previous?.value.toString(), '2');
  });
  with_('a watch from a past revision shows the past first, also for all resources', async ({ storage }) => {
    const a = await storage.create('/core/x/a', bytes('1'));
    await storage.create('/core/x/b', bytes('1'));
    await storage.delete('/core/x/a', a.revision);
    const narrow = record(storage, '/core/x/', a.revision);
    const wide = record(storage, '/', a.revision);
    await storage.create('/core/x/c', bytes('1'));
    const expected = ['create /core/x/b', 'delete /core/x/a', 'create /core/x/c'];
    assert.deepEqual(narrow.shown(), expected);
    assert.deepEqual(wide.shown(), expected);
  });
  with_('a watch from a revision that is yet to come shows only what is above it', async ({ storage }) => {
    const { shown } = record(storage, '/core/x/', storage.revision() + 2);
    for (const name of ['a', 'b', 'c']) await storage.create(`/core/x/${name}`, bytes('1'));
    assert.deepEqual(shown(), ['create /core/x/c']);
  });
  with_('a closed watch shows nothing more, and closing the storage ends the others', async ({ storage }) => {
    const closed = record(storage, '/core/x/');
    const open = record(storage, '/core/x/');
    closed.watch.close();
    await storage.create('/core/x/a', bytes('1'));
    assert.deepEqual([closed.events.length, open.events.length], [0, 1]);
    await storage.close();
    assert.deepEqual([closed.isEnded(), open.isEnded()], [false, true]);
  });
}

function history(with_: With): void {
  with_('compaction forgets what was superseded and nothing else', async ({ storage }) => {
    const a = await storage.create('/core/x/a', bytes('1'));
    const b = await storage.create('/core/x/b', bytes('1'));
    const a2 = await storage.update('/core/x/a', bytes('2'), a.revision);
    await storage.delete('/core/x/b', b.revision);
    await storage.compact(a2.revision);
    assert.equal(storage.compactedRevision(), a2.revision);
    await assert.rejects(storage.list('/core/x/', { revision: a.revision }), failsWith('compacted'));
    assert.throws(() => record(storage, '/core/x/', a.revision), failsWith('compacted'));
    const at = await storage.list('/core/x/', { revision: a2.revision });
    assert.deepEqual(
      at.items.map((item) => `${item.key}=${item.value}`),
      ['/core/x/a=2', '/core/x/b=1'],
    );
    assert.deepEqual(record(storage, '/core/x/', a2.revision).shown(), ['delete /core/x/b']);
    await assert.rejects(storage.compact(storage.revision() + 1), failsWith('future-revision'));
  });
}

function restarts(with_: With): void {
  with_('what was written, its history and its revisions are there after a restart', async (under) => {
    if (under.reopen === undefined) return;
    const { storage } = under;
    const a = await storage.create('/core/x/a', bytes('1'));
    const gone = await storage.create('/core/x/gone', bytes('1'));
    await storage.compact(gone.revision);
    await storage.update('/core/x/a', bytes('2'), a.revision);
    const deleted = await storage.delete('/core/x/gone', gone.revision);
    const { storage: again } = await under.reopen();
    assert.equal(again.revision(), deleted);
    assert.equal(again.compactedRevision(), gone.revision);
    assert.deepEqual(record(again, '/core/x/', gone.revision).shown(), ['update /core/x/a', 'delete /core/x/gone']);
    const past = await again.list('/core/x/', { revision: gone.revision });
    assert.deepEqual(
      past.items.map((item) => `${item.key}=${item.value}`),
      ['/core/x/a=1', '/core/x/gone=1'],
    );
    const kept = await again.get('/core/x/a');
    assert.deepEqual([kept?.value.toString(), kept?.createRevision], ['2', a.createRevision]);
  });
  with_('a revision is not given twice, also when the newest was a deletion that is compacted', async (under) => {
    if (under.reopen === undefined) return;
    const { storage } = under;
    const a = await storage.create('/core/x/a', bytes('1'));
    const deleted = await storage.delete('/core/x/a', a.revision);
    await storage.compact(deleted);
    const { storage: again } = await under.reopen();
    assert.ok((await again.create('/core/x/b', bytes('1'))).revision > deleted);
  });
  with_('an expiry is kept over a restart', async (under) => {
    if (under.reopen === undefined) return;
    const expiresAtMs = under.clock.now() + (under.lifeMs ?? 60_000);
    await under.storage.create('/core/events/a', bytes('1'), { expiresAtMs });
    const { storage, clock } = await under.reopen();
    const { events, shown } = record(storage, '/core/events/');
    await clock.advance(120_000);
    while (events.length === 0) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(shown(), ['delete /core/events/a']);
  });
}
