/** Tests the revision log with a failing backend and with failing watches. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { RevisionLog, type RevisionLogOptions } from '../../../../controlplane/storage/revision-log.ts';
import { isStorageError, StorageError, type StorageErrorCode } from '../../../../controlplane/storage/storage.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { FakeLogBackend } from '../../../fakes/fake-log-backend.ts';

function open(backend: FakeLogBackend, options: Partial<RevisionLogOptions> = {}) {
  const clock = new FakeClock();
  const log = new RevisionLog({ clock, logger: silentLogger, backend, ...options });
  const records = [...backend.records.values()].sort((a, b) => a.revision - b.revision);
  const garbage = [...log.load(records, backend.marks.compactedRevision)];
  log.loaded(backend.marks);
  return { clock, log, garbage };
}

const value = Buffer.from('v');
const fails = (code: StorageErrorCode) => (error: unknown) => isStorageError(error, code);

/** Returns a backend with this number of records of keys that were created, updated and deleted at intervals. */
function historyOf(records: number): FakeLogBackend {
  const backend = new FakeLogBackend();
  const third = records / 3;
  for (let at = 0; at < records; at += 1) {
    const revision = at + 3;
    const createRevision = (at % third) + 3;
    const kept = at < 2 * third ? value : undefined;
    const key = `/core/x/${at % third}`;
    backend.records.set(revision, { revision, key, value: kept, createRevision, expiresAtMs: undefined });
    backend.marks = { ...backend.marks, lastRevision: revision };
  }
  return backend;
}

async function keysAfterRestart(backend: FakeLogBackend): Promise<string[]> {
  backend.onCall = () => undefined;
  const { log, garbage } = open(backend);
  await log.discard(garbage);
  const { items } = await log.list('/core/x/');
  return items.map(({ key }) => key);
}

describe('compaction that fails', { timeout: 10_000 }, () => {
  it('never brings deleted objects back: what could not be removed is removed before what comes later', async () => {
    const backend = new FakeLogBackend();
    const { clock, log } = open(backend);
    const objects = [];
    for (let at = 0; at < 60; at += 1) objects.push(await log.create(`/core/x/${at}`, value));
    for (const { key, revision } of objects.slice(0, 30)) await log.update(key, value, revision);
    backend.onCall = (operation) => {
      if (operation === 'remove') throw new StorageError('full', 'the disk is full');
    };
    await assert.rejects(log.compact(log.revision()), fails('full'));
    const { items } = await log.list('/core/x/');
    for (const { key, revision } of items) await log.delete(key, revision);
    // At first there is room for one removal, and then for none.
    let room = 1;
    backend.onCall = (operation) => {
      if (operation === 'remove' && (room -= 1) < 0) throw new StorageError('full', 'the disk is full');
    };
    await assert.rejects(log.compact(log.revision()), fails('full'));
    assert.deepEqual(await keysAfterRestart(backend), []);
    backend.onCall = () => undefined;
    await clock.advance(60_000);
    assert.equal(backend.records.size, 0, 'the backlog is removed by itself once there is room');
  });

  it('fails at any step and loses or revives nothing, whichever step it is', async () => {
    for (let allowed = 0; allowed < 6; allowed += 1) {
      const backend = new FakeLogBackend();
      const { log } = open(backend);
      let left = allowed;
      backend.onCall = (operation) => {
        if (operation === 'remove' && (left -= 1) < 0) throw new StorageError('full', 'the disk is full');
      };
      for (let round = 0; round < 3; round += 1) {
        const gone = await log.create(`/core/x/gone-${round}`, value);
        const kept = await log.create(`/core/x/kept-${round}`, value);
        await log.compact(log.revision()).catch(() => undefined);
        await log.delete(gone.key, gone.revision);
        await log.update(kept.key, value, kept.revision);
        await log.compact(log.revision()).catch(() => undefined);
      }
      assert.deepEqual(await keysAfterRestart(backend), ['/core/x/kept-0', '/core/x/kept-1', '/core/x/kept-2']);
    }
  });

  it('revives nothing where two compactions of a long history run at once, whichever removal fails', async () => {
    for (let allowed = 0; allowed < 25; allowed += 4) {
      const backend = historyOf(12_000);
      const { log, garbage } = open(backend);
      assert.deepEqual(garbage, []);
      let left = allowed;
      backend.onCall = (operation) => {
        if (operation === 'remove' && (left -= 1) < 0) throw new StorageError('full', 'the disk is full');
      };
      await Promise.allSettled([log.compact(log.revision() - 100), log.compact(log.revision())]);
      assert.deepEqual(await keysAfterRestart(backend), []);
    }
  });

  it('while the log closes is no unhandled rejection', async () => {
    const backend = new FakeLogBackend();
    const { log } = open(backend, { historyLimitBytes: 500 });
    let { revision } = await log.create('/core/x/a', Buffer.alloc(100));
    const updates: Promise<unknown>[] = [];
    for (let at = 0; at < 5; at += 1) {
      const update = log.update('/core/x/a', Buffer.alloc(100), revision);
      updates.push(update);
      if (at < 4) ({ revision } = await update);
    }
    await log.close();
    await Promise.all(updates);
  });
});

describe('compaction of a long history', { timeout: 20_000 }, () => {
  /** Returns the maximum number of revisions that are forgotten in one turn of the event loop. */
  async function longestStep(log: RevisionLog, through: number): Promise<number> {
    let [longest, before] = [0, log.compactedRevision()];
    while (log.compactedRevision() < through) {
      await new Promise(setImmediate);
      longest = Math.max(longest, log.compactedRevision() - before);
      before = log.compactedRevision();
    }
    return longest;
  }

  it('gives the event loop back between its steps', async () => {
    const backend = historyOf(30_000);
    const { log } = open(backend);
    const through = log.revision();
    const compacted = log.compact(through);
    assert.ok((await longestStep(log, through)) <= 10_000);
    await compacted;
    assert.equal(backend.records.size, 0);
    assert.equal(backend.marks.compactedRevision, through);
  });

  it('that is early, because too much was overwritten, does so as well and keeps the rest', async () => {
    const backend = historyOf(60_000);
    const { log } = open(backend, { historyLimitBytes: 1_000_000 });
    const before = log.revision();
    await log.create('/core/x/last', value);
    assert.ok((await longestStep(log, before / 4)) <= 10_000);
    assert.ok(log.compactedRevision() < before / 2, `${log.compactedRevision()} of ${before} are forgotten`);
    await log.close();
  });
});

describe('a watch that throws', { timeout: 10_000 }, () => {
  it('is closed and counted; writes and other watches go on', async () => {
    const failed: string[] = [];
    const { log } = open(new FakeLogBackend(), { onWatchFailed: (resource) => failed.push(resource) });
    const ends: unknown[] = [];
    const seen: number[] = [];
    for (const prefix of ['/core/x/', '/'])
      log.watch(
        { prefix, afterRevision: log.revision() },
        {
          onEvents: () => {
            throw new Error('an encoder failed');
          },
          onEnd: (error) => ends.push(error?.code),
        },
      );
    log.watch(
      { prefix: '/core/x/', afterRevision: log.revision() },
      { onEvents: (events) => seen.push(events.length), onEnd: () => undefined },
    );
    const { revision } = await log.create('/core/x/a', value);
    await log.update('/core/x/a', value, revision);
    assert.deepEqual(seen, [1, 1]);
    assert.deepEqual(ends, ['unusable', 'unusable']);
    assert.deepEqual(failed, ['/core/x/', '/']);
  });

  it('whose failure cannot be counted fails the storage, and holds up no later write', async () => {
    const failures: Error[] = [];
    const onWatchFailed = (): never => {
      throw new Error('the metric is broken');
    };
    const { log } = open(new FakeLogBackend(), { onWatchFailed, onFailure: (error) => failures.push(error) });
    const observer = {
      onEvents: () => {
        throw new Error('an encoder failed');
      },
      onEnd: () => undefined,
    };
    log.watch({ prefix: '/core/x/', afterRevision: log.revision() }, observer);
    await log.create('/core/x/a', value);
    await assert.rejects(log.create('/core/x/b', value), fails('unusable'));
    assert.deepEqual(
      failures.map(({ message }) => message),
      ['the metric is broken'],
    );
    await log.close();
  });

  it('may throw at its end as well', async () => {
    const { log } = open(new FakeLogBackend());
    const fail = (): never => {
      throw new Error('failed');
    };
    log.watch({ prefix: '/core/x/', afterRevision: log.revision() }, { onEvents: fail, onEnd: fail });
    await log.create('/core/x/a', value);
    await log.close();
  });

  it('closed twice leaves a later watch of its resource in place', async () => {
    const { log } = open(new FakeLogBackend());
    let seen = 0;
    const watch = () =>
      log.watch(
        { prefix: '/core/x/', afterRevision: log.revision() },
        { onEvents: () => (seen += 1), onEnd: () => undefined },
      );
    const first = watch();
    first.close();
    watch();
    first.close();
    await log.create('/core/x/a', value);
    assert.equal(seen, 1);
  });
});

describe('a backend that throws synchronously', { timeout: 10_000 }, () => {
  it('refuses the group cleanly if there is no room, and accepts the next write', async () => {
    const backend = new FakeLogBackend();
    const { log } = open(backend);
    backend.onCall = () => {
      throw new StorageError('full', 'the disk is full');
    };
    await assert.rejects(log.create('/core/x/a', value), fails('full'));
    backend.onCall = () => undefined;
    await log.create('/core/x/a', value);
  });

  it('ends writing where the outcome is unknown, and answers every writer', async () => {
    const backend = new FakeLogBackend();
    const failures: Error[] = [];
    const { log } = open(backend, { onFailure: (error) => failures.push(error) });
    backend.onCall = () => {
      throw new TypeError('a bug');
    };
    const writes = [log.create('/core/x/a', value), log.create('/core/x/a', value), log.create('/core/x/b', value)];
    const outcomes = await Promise.allSettled(writes);
    assert.ok(outcomes.every((one) => one.status === 'rejected' && isStorageError(one.reason)));
    await assert.rejects(log.create('/core/x/c', value), fails('unusable'));
    assert.equal(failures.length, 1);
  });

  it('accepts no further write after an unknown outcome, although it is closing', async () => {
    const backend = new FakeLogBackend();
    const { log } = open(backend);
    const appended = Promise.withResolvers<void>();
    let appends = 0;
    backend.append = () => {
      appends += 1;
      return appended.promise;
    };
    const first = log.create('/core/x/a', value);
    await new Promise(setImmediate);
    const second = log.create('/core/x/b', value);
    const closed = log.close();
    appended.reject(new Error('fsync failed'));
    const outcomes = await Promise.allSettled([first, second]);
    assert.ok(outcomes.every(({ status }) => status === 'rejected'));
    assert.equal(appends, 1);
    await closed;
  });

  it('fails where a durable value cannot be shown, and answers its writers', async () => {
    const failures: Error[] = [];
    const stamp = (): never => {
      throw new Error('not an object');
    };
    const { log } = open(new FakeLogBackend(), { stamp, onFailure: (error) => failures.push(error) });
    await assert.rejects(log.create('/core/x/a', value), fails('unknown-outcome'));
    assert.equal(failures.length, 1);
    await log.close();
  });

  it('refuses only the value that cannot be kept, not the others of its group', async () => {
    const backend = new FakeLogBackend();
    const { log } = open(backend);
    const append = backend.append.bind(backend);
    backend.append = (records) => {
      if (records.some(({ key }) => key.endsWith('/secret'))) throw new StorageError('refused', 'no key');
      return append(records);
    };
    const outcomes = await Promise.allSettled(['a', 'secret', 'b'].map((name) => log.create(`/core/x/${name}`, value)));
    assert.deepEqual(
      outcomes.map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled'],
    );
  });
});

describe('the health of the storage', { timeout: 10_000 }, () => {
  it('fails at once when the backend is gone, also while nobody writes', async () => {
    const backend = new FakeLogBackend();
    const failures: Error[] = [];
    const { log } = open(backend, { onFailure: (error) => failures.push(error) });
    await log.check({ writes: true });
    backend.lose(new Error('the thread exited'));
    await assert.rejects(log.check({ writes: false }), /the storage failed: the thread exited/);
    assert.equal(failures.length, 1);
  });

  it('fails for readiness alone while the disk is full, and a probe ends that', async () => {
    const backend = new FakeLogBackend();
    const { clock, log } = open(backend);
    backend.onCall = () => {
      throw new StorageError('full', 'the disk is full');
    };
    await assert.rejects(log.create('/core/x/a', value), fails('full'));
    await log.check({ writes: false });
    await assert.rejects(log.check({ writes: true }), /the disk is full/);
    await clock.advance(20_000);
    await assert.rejects(log.check({ writes: true }), /the disk is full/);
    backend.onCall = () => undefined;
    await clock.advance(6000);
    await log.check({ writes: true });
  });

  it('is probed and reported once while small writes succeed between others that find no room', async () => {
    const backend = new FakeLogBackend();
    const lines: string[] = [];
    const log = (_fields: object, message: string): void => void lines.push(message);
    const logger = { ...silentLogger, error: log, info: log };
    const { clock, log: storage } = open(backend, { logger });
    let probes = 0;
    const append = backend.append.bind(backend);
    backend.append = (records) =>
      records.some((record) => (record.value?.length ?? 0) > 10)
        ? Promise.reject(new StorageError('full', 'the disk is full'))
        : append(records);
    backend.probe = () => {
      probes += 1;
      return Promise.reject(new StorageError('full', 'the disk is full'));
    };
    for (let second = 0; second < 30; second += 1) {
      await assert.rejects(storage.create('/core/x/large', Buffer.alloc(100)), fails('full'));
      await storage.create(`/core/x/${second}`, value);
      await clock.advance(1000);
    }
    assert.ok(probes >= 5, `${probes} probes in 30 s`);
    assert.equal(lines.filter((line) => line.includes('The disk is full')).length, 1);
    assert.ok(storage.compactedRevision() > 2, 'history makes room');
    backend.probe = () => Promise.resolve();
    await clock.advance(10_000);
    assert.equal(lines.at(-1), 'There is room again: the storage accepts writes');
  });

  it('fails for readiness while the write-ahead log cannot be moved into the file', async () => {
    const backend = new FakeLogBackend();
    const { log } = open(backend);
    backend.trouble('the write-ahead log cannot be moved into the file: disk I/O error');
    await log.check({ writes: false });
    await assert.rejects(log.check({ writes: true }), /disk I\/O error/);
    backend.trouble(undefined);
    await log.check({ writes: true });
  });

  it('probes a backend that has a problem, until it has none', async () => {
    const backend = new FakeLogBackend();
    const { clock, log } = open(backend);
    let probes = 0;
    backend.onCall = (operation) => {
      if (operation === 'probe') probes += 1;
    };
    backend.trouble('the write-ahead log cannot be moved into the file: disk I/O error');
    // A write that succeeds says nothing about the problem.
    await log.create('/core/x/a', value);
    await clock.advance(11_000);
    assert.equal(probes, 2);
    backend.trouble(undefined);
    await clock.advance(20_000);
    assert.ok(probes <= 3, `${probes} probes`);
  });

  it('fails when the backend does not answer within two seconds', async () => {
    const backend = new FakeLogBackend();
    const { clock, log } = open(backend);
    const answer = Promise.withResolvers<void>();
    backend.ping = () => answer.promise;
    const late = assert.rejects(log.check({ writes: false }), /has not answered for 2 s/);
    await clock.advance(2000);
    await late;
    answer.resolve();
    await log.check({ writes: false });
  });
});
