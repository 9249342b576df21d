/**
 * Tests what several servers on one etcd see of each other, and what happens when etcd does not answer, restarts or is full.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { takeTurn } from '../../controlplane/storage/etcd/etcd-compactor.ts';
import type { EtcdValueLayout } from '../../controlplane/storage/etcd/etcd-reader.ts';
import { EtcdServers } from '../../controlplane/storage/etcd/etcd-servers.ts';
import { type EtcdStorageOptions, openEtcdStorage } from '../../controlplane/storage/etcd/etcd-storage.ts';
import { isStorageError, type Storage } from '../../controlplane/storage/storage.ts';
import { plainValues } from '../../controlplane/storage/value-transformer.ts';
import { etcdMissing, EtcdProcess } from '../etcd-process.ts';
import { HeldProxy } from '../held-proxy.ts';
import { until } from '../until.ts';
import { layoutBelow } from './etcd-contract-layout.ts';

const bytes = (text: string): Buffer => Buffer.from(text);

describe('several storages on one etcd', { skip: etcdMissing }, () => {
  let etcd: EtcdProcess;
  let prefix = '';
  let opened: Storage[] = [];
  let count = 0;

  before(async () => {
    etcd = await EtcdProcess.start();
  });
  beforeEach(() => {
    count += 1;
    prefix = `/shared${count}`;
  });
  after(async () => {
    for (const storage of opened) await storage.close();
    opened = [];
    await etcd.remove();
  });

  const open = async (options: Partial<EtcdStorageOptions> = {}): Promise<Storage> => {
    const servers = await etcd.connect();
    const layout = layoutBelow(prefix);
    const storage = await openEtcdStorage({ servers, layout, clock: systemClock, logger: silentLogger, ...options });
    opened.push(storage);
    return storage;
  };
  const catchUp = async (storage: Storage): Promise<void> => storage.catchUp?.();
  const names = async (storage: Storage): Promise<string[]> =>
    (await storage.list('/core/x/')).items.map(({ key }) => key.slice('/core/x/'.length));

  it('show after a fresh read what the other has acknowledged', async () => {
    const [one, other] = [await open(), await open()];
    for (let i = 0; i < 50; i += 1) {
      const written = await one.create(`/core/x/${i}`, bytes(`${i}`));
      await catchUp(other);
      const read = await other.get(`/core/x/${i}`);
      assert.deepEqual([read?.revision, read?.value.toString()], [written.revision, `${i}`]);
      const deleted = await other.delete(`/core/x/${i}`, written.revision);
      await catchUp(one);
      assert.equal(await one.get(`/core/x/${i}`), undefined);
      assert.ok(one.revision() >= deleted);
    }
  });

  it('refuse a write from a revision that the other has replaced, with the newer value', async () => {
    const [one, other] = [await open(), await open()];
    const first = await one.create('/core/x/a', bytes('1'));
    const second = await other.update('/core/x/a', bytes('2'), first.revision);
    await assert.rejects(one.update('/core/x/a', bytes('3'), first.revision), (error) => {
      assert.ok(isStorageError(error, 'conflict'));
      return error.current?.revision === second.revision && error.current.value.toString() === '2';
    });
    await assert.rejects(one.create('/core/x/a', bytes('3')), (error) => isStorageError(error, 'exists'));
    await other.delete('/core/x/a', second.revision);
    await assert.rejects(one.update('/core/x/a', bytes('3'), second.revision), (error) =>
      isStorageError(error, 'not-found'),
    );
  });

  it('let one of concurrent writers of a key succeed at a time, and lose no update', async () => {
    const storages = [await open(), await open(), await open()];
    const [first] = storages;
    assert.ok(first);
    await first.create('/core/x/n', bytes('0'));
    let conflicts = 0;
    const countUp = async (storage: Storage): Promise<void> => {
      for (;;) {
        await catchUp(storage);
        const current = await storage.get('/core/x/n');
        assert.ok(current);
        try {
          await storage.update('/core/x/n', bytes(String(Number(current.value) + 1)), current.revision);
          return;
        } catch (error) {
          if (!isStorageError(error, 'conflict')) throw error;
          conflicts += 1;
        }
      }
    };
    await Promise.all(
      storages.flatMap((storage) =>
        Array.from({ length: 4 }, async () => {
          for (let i = 0; i < 10; i += 1) await countUp(storage);
        }),
      ),
    );
    await catchUp(first);
    assert.equal((await first.get('/core/x/n'))?.value.toString(), '120');
    assert.ok(conflicts > 0);
  });

  it('deliver the changes of all to their watches in one order', async () => {
    const storages = [await open(), await open()];
    const seen = storages.map((storage) => {
      const events: string[] = [];
      storage.watch(
        { prefix: '/core/', afterRevision: storage.revision() },
        {
          onEvents: (batch) => void events.push(...batch.map(({ revision, key }) => `${revision} ${key}`)),
          onEnd: () => undefined,
        },
      );
      return events;
    });
    await Promise.all(
      storages.flatMap((storage, at) =>
        Array.from({ length: 100 }, (_, i) =>
          storage.create(`/core/x/${at}-${i}`, bytes('1'), {
            transactionWrites: [{ key: `/core/y/${at}-${i}`, value: bytes('1') }],
          }),
        ),
      ),
    );
    for (const storage of storages) await catchUp(storage);
    assert.equal(seen[0]?.length, 400);
    assert.deepEqual(seen[0], seen[1]);
    const revisions = seen[0].map((text) => Number(text.split(' ')[0]));
    assert.deepEqual(
      revisions,
      revisions.toSorted((a, b) => a - b),
    );
  });

  it('forget the history that another one compacts, and keep newer history', async () => {
    const [one, other] = [await open(), await open()];
    const first = await one.create('/core/x/a', bytes('1'));
    const second = await one.update('/core/x/a', bytes('2'), first.revision);
    const servers = await etcd.connect();
    try {
      const turn = await takeTurn(servers, { version: 0, revision: 0 });
      const third = await one.update('/core/x/a', bytes('3'), second.revision);
      const next = await takeTurn(servers, turn);
      assert.deepEqual([next.version, next.revision > third.revision], [turn.version + 1, true]);
      const late = await takeTurn(servers, turn);
      assert.equal(late.version, next.version, 'the turn was taken already');
    } finally {
      servers.close();
    }
    await catchUp(other);
    await until('the compaction to be followed', () => other.compactedRevision() >= second.revision);
    assert.throws(
      () => other.watch({ prefix: '/core/x/', afterRevision: first.revision }, { onEvents() {}, onEnd() {} }),
      (error) => isStorageError(error, 'compacted'),
    );
    assert.equal((await other.get('/core/x/a'))?.value.toString(), '3');
    const third = await open();
    assert.deepEqual(await names(third), ['a']);
  });

  it('share a lease between keys of the same life, and start another one when it is full', async () => {
    const storage = await open({ leaseMaxObjects: 3 });
    const expiresAtMs = Date.now() + 3_600_000;
    await Promise.all(
      Array.from({ length: 7 }, (_, i) => storage.create(`/core/events/${i}`, bytes('1'), { expiresAtMs })),
    );
    const servers = await etcd.connect();
    try {
      const key = Buffer.from(`${prefix}/core/events/`);
      const rangeEnd = Buffer.from(`${prefix}/core/events0`);
      const { kvs } = await servers.run((rpc, options) => rpc.call('range', { key, rangeEnd }, options));
      assert.equal(kvs.length, 7);
      const leases = new Set(kvs.map(({ lease }) => lease));
      assert.ok(!leases.has(0));
      assert.equal(leases.size, 3);
    } finally {
      servers.close();
    }
  });

  it('skip a value that cannot be read, keep the one before, and count it', async () => {
    const unreadable: string[] = [];
    const layout: EtcdValueLayout = {
      ...layoutBelow(prefix),
      transformer: plainValues,
      values: {
        toEtcd: (value) => value,
        fromEtcd(value) {
          if (value.toString() === 'broken') throw new Error('not an object');
          return value;
        },
      },
    };
    const writer = await open();
    const broken = await writer.create('/core/x/broken', bytes('broken'));
    const reader = await open({ layout, onUnreadable: (resource) => unreadable.push(resource) });
    assert.deepEqual(await names(reader), []);
    const good = await writer.create('/core/x/good', bytes('1'));
    await writer.update('/core/x/good', bytes('broken'), good.revision);
    await catchUp(reader);
    assert.equal((await reader.get('/core/x/good'))?.value.toString(), '1');
    assert.deepEqual(unreadable, ['/core/x/', '/core/x/']);
    await assert.rejects(reader.create('/core/x/broken', bytes('2')), (error) => isStorageError(error, 'refused'));
    await writer.delete('/core/x/broken', broken.revision);
    await catchUp(reader);
    await reader.create('/core/x/broken', bytes('2'));
  });
});

describe('a storage on an etcd that fails', { skip: etcdMissing }, () => {
  let etcd: EtcdProcess;
  let storage: Storage;
  const open = async (): Promise<Storage> =>
    openEtcdStorage({
      servers: await etcd.connect(),
      layout: layoutBelow('/failing'),
      clock: systemClock,
      logger: silentLogger,
    });

  before(async () => {
    etcd = await EtcdProcess.start(['--quota-backend-bytes', String(4 * 1024 * 1024)]);
    storage = await open();
  });
  after(async () => {
    await storage.close();
    await etcd.remove();
  });

  it('answers with an error while etcd is down, keeps what it has, and goes on without a gap', async () => {
    const seen: string[] = [];
    storage.watch(
      { prefix: '/core/x/', afterRevision: storage.revision() },
      { onEvents: (batch) => void seen.push(...batch.map(({ key }) => key)), onEnd: () => void seen.push('end') },
    );
    const first = await storage.create('/core/x/a', bytes('1'));
    await etcd.stop();
    await assert.rejects(
      async () => storage.catchUp?.(),
      (error) => isStorageError(error, 'unavailable'),
    );
    await assert.rejects(storage.create('/core/x/b', bytes('1')), (error) => isStorageError(error, 'unavailable'));
    await assert.rejects(storage.check({ writes: false }));
    assert.equal((await storage.get('/core/x/a'))?.revision, first.revision);
    await etcd.launch();
    const other = await open();
    await other.create('/core/x/c', bytes('1'));
    await other.close();
    await until('the storage to follow etcd again', async () => {
      await storage.catchUp?.();
      return true;
    });
    await storage.create('/core/x/d', bytes('1'));
    await storage.check({ writes: true });
    assert.deepEqual(seen, ['/core/x/a', '/core/x/c', '/core/x/d']);
  });

  it('does not know the outcome of a write whose answer does not come, and sees it when etcd goes on', async () => {
    const key = '/core/x/held';
    await etcd.pause();
    const write = storage.create(key, bytes('1')).catch((error: unknown) => error);
    const error = await write;
    assert.ok(isStorageError(error, 'unknown-outcome') || isStorageError(error, 'unavailable'), String(error));
    etcd.resume();
    await until('etcd to answer', async () => {
      await storage.catchUp?.();
      return true;
    });
    const read = await storage.get(key);
    if (read === undefined) await storage.create(key, bytes('2'));
    else await assert.rejects(storage.create(key, bytes('2')), (again) => isStorageError(again, 'exists'));
  });

  it('loads all objects again after a compaction that it missed, and reports the gap to watches', async () => {
    const gone = await storage.create('/core/x/gone', bytes('1'));
    const changed = await storage.create('/core/x/changed', bytes('1'));
    // The connection breaks, and all changes that happen meanwhile are compacted.
    const proxy = await HeldProxy.to(etcd.url);
    const servers = await EtcdServers.open({ servers: [proxy.url], tls: {}, clock: systemClock });
    const behind = await openEtcdStorage({
      servers,
      layout: layoutBelow('/failing'),
      clock: systemClock,
      logger: silentLogger,
    });
    const behindEvents: string[] = [];
    const behindGaps: number[] = [];
    behind.watch(
      { prefix: '/core/x/', afterRevision: behind.revision() },
      {
        onEvents: (batch) =>
          void behindEvents.push(...batch.map((one) => `${one.current === undefined ? '-' : '+'}${one.key}`)),
        onEnd: () => void behindEvents.push('end'),
        onGap: (revision) => void behindGaps.push(revision),
      },
    );
    proxy.cut();
    await storage.delete('/core/x/gone', gone.revision);
    const between = await storage.update('/core/x/changed', bytes('2'), changed.revision);
    const last = await storage.update('/core/x/changed', bytes('3'), between.revision);
    await storage.compact(last.revision);
    proxy.heal();
    await until('the storage to catch up', async () => {
      await behind.catchUp?.();
      return behind.revision() >= last.revision;
    });
    assert.equal(behindGaps.length, 1);
    assert.deepEqual(behindEvents.sort(), ['+/core/x/changed', '-/core/x/gone']);
    assert.equal((await behind.get('/core/x/changed'))?.value.toString(), '3');
    assert.equal(await behind.get('/core/x/gone'), undefined);
    assert.ok(behind.compactedRevision() >= last.revision);
    await behind.close();
    await proxy.close();
  });

  it('refuses writes when etcd has no space, reads on, and writes again when there is space', async () => {
    const large = Buffer.alloc(500_000, 'x');
    await assert.rejects(
      async () => {
        for (let i = 0; i < 50; i += 1) await storage.create(`/core/big/${i}`, large);
      },
      (error) => isStorageError(error, 'full'),
    );
    await assert.rejects(storage.create('/core/x/full', bytes('1')), (error) => isStorageError(error, 'full'));
    await storage.catchUp?.();
    await storage.check({ writes: false });
    await assert.rejects(storage.check({ writes: true }), /etcd has no space/);
    for (const { key, revision } of (await storage.list('/core/big/')).items) await storage.delete(key, revision);
    await storage.compact(storage.revision());
    const servers = await etcd.connect();
    await servers.run((rpc, options) => rpc.call('defragment', {}, options));
    servers.close();
    await etcd.disarm();
    await storage.create('/core/x/full', bytes('1'));
    await storage.check({ writes: true });
  });
});

describe('a storage on an etcd of three members', { skip: etcdMissing }, () => {
  let members: readonly EtcdProcess[] = [];

  before(async () => {
    members = await EtcdProcess.cluster(3);
  });
  after(async () => {
    for (const member of members) await member.remove();
  });

  const openOver = async (
    urls: readonly string[],
  ): Promise<{ storage: Storage; seen: string[]; servers: EtcdServers }> => {
    const servers = await EtcdServers.open({ servers: urls, tls: {}, clock: systemClock });
    const layout = layoutBelow('/members');
    const storage = await openEtcdStorage({ servers, layout, clock: systemClock, logger: silentLogger });
    const seen: string[] = [];
    storage.watch(
      { prefix: '/core/x/', afterRevision: storage.revision() },
      { onEvents: (batch) => void seen.push(...batch.map(({ key }) => key)), onEnd: () => void seen.push('end') },
    );
    return { storage, seen, servers };
  };

  it('uses another member when its own is killed, and misses nothing', async () => {
    const { storage, seen } = await openOver(members.map(({ url }) => url));
    const made: string[] = [];
    try {
      await storage.create('/core/x/0', bytes('1'));
      await members[0]?.stop();
      for (let i = 1; i < 20; i += 1) {
        const name = `/core/x/${i}`;
        await until('a write', async () => {
          try {
            await storage.create(name, bytes('1'));
            return true;
          } catch (error) {
            // The outcome of the write before was unknown.
            return isStorageError(error, 'exists');
          }
        });
        made.push(name);
      }
      await storage.catchUp?.();
      assert.deepEqual(seen, ['/core/x/0', ...made]);
      await members[0]?.launch();
    } finally {
      await storage.close();
    }
  });

  it('uses the members that it is given later, misses nothing, and keeps those that it has without any', async () => {
    const [first = '', ...others] = members.map(({ url }) => url);
    const { storage, seen, servers } = await openOver([first]);
    try {
      await storage.create('/core/x/later-0', bytes('1'));
      await servers.replace([first, ...others]);
      assert.deepEqual([servers.url, servers.urls], [first, [first, ...others]]);
      await storage.create('/core/x/later-1', bytes('1'));
      await servers.replace(others);
      assert.deepEqual([servers.url, servers.urls], [others[0], others]);
      await storage.create('/core/x/later-2', bytes('1'));
      await servers.replace([]);
      await assert.rejects(servers.replace(['no URL']), (error) => isStorageError(error, 'unusable'));
      assert.deepEqual(servers.urls, others);
      await storage.catchUp?.();
      assert.deepEqual(seen, ['/core/x/later-0', '/core/x/later-1', '/core/x/later-2']);
    } finally {
      await storage.close();
    }
  });

  it('uses another member when the connection to its own is dead without an error', async () => {
    const [first, ...others] = members.map(({ url }) => url);
    const proxy = await HeldProxy.to(first ?? '');
    const { storage, seen } = await openOver([proxy.url, ...others]);
    const writer = await openOver(others);
    try {
      await writer.storage.create('/core/x/before', bytes('1'));
      await storage.catchUp?.();
      proxy.hold();
      await writer.storage.create('/core/x/after', bytes('1'));
      await storage.catchUp?.();
      assert.deepEqual(seen, ['/core/x/before', '/core/x/after']);
      const written = await storage.create('/core/x/own', bytes('1'));
      assert.equal(storage.revision(), written.revision);
    } finally {
      await storage.close();
      await writer.storage.close();
      await proxy.close();
    }
  });
});
