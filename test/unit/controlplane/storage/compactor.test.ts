/** Tests the compactor in virtual time. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { it } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { startCompactor } from '../../../../controlplane/storage/compactor.ts';
import { RevisionLog } from '../../../../controlplane/storage/revision-log.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { FakeLogBackend } from '../../../fakes/fake-log-backend.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const MINUTE = 60_000;

function open() {
  const clock = new FakeClock();
  const removals: number[][] = [];
  const backend = new FakeLogBackend();
  let calls = 0;
  backend.onCall = (operation, revisions) => {
    calls += 1;
    if (operation === 'remove' && revisions.length > 0) removals.push([...revisions]);
  };
  const storage = new RevisionLog({ clock, logger: silentLogger, backend });
  startCompactor({ storage, clock, logger: silentLogger });
  return { clock, storage, removals, calls: () => calls };
}

/** Opens what a killed process leaves on the disk. */
function restart(clock: FakeClock, backend: FakeLogBackend, windowMs: number) {
  const storage = new RevisionLog({ clock, logger: silentLogger, backend });
  const records = [...backend.records.values()];
  const garbage = [...storage.load(records, backend.marks.compactedRevision)];
  storage.loaded(backend.marks);
  const compactor = startCompactor({ storage, clock, logger: silentLogger, windowMs });
  return { storage, garbage, kill: () => compactor.stop() };
}

it('forgets what is older than five minutes and keeps what is younger', async () => {
  const { clock, storage, removals } = open();
  const first = await storage.create('/core/x/a', Buffer.from('1'));
  const second = await storage.update('/core/x/a', Buffer.from('2'), first.revision);
  await clock.advance(4 * MINUTE);
  const third = await storage.update('/core/x/a', Buffer.from('3'), second.revision);
  await clock.advance(3.9 * MINUTE);
  assert.equal(storage.compactedRevision(), second.revision);
  assert.deepEqual(removals, [[first.revision]]);
  assert.equal((await storage.get('/core/x/a', { revision: second.revision }))?.value.toString(), '2');
  await clock.advance(6 * MINUTE);
  assert.equal(storage.compactedRevision(), third.revision);
});

it('writes nothing while nothing is written', async () => {
  const { clock, storage, calls } = open();
  const { revision } = await storage.create('/core/x/a', Buffer.from('1'));
  await storage.update('/core/x/a', Buffer.from('2'), revision);
  await clock.advance(15 * MINUTE);
  const before = calls();
  await clock.advance(120 * MINUTE);
  assert.equal(calls(), before);
});

for (const lifeMs of [1000, 4000, 7000]) {
  it(`bounds the history of a process that is killed every ${lifeMs / 1000} s, with a window of 6 s`, async () => {
    const clock = new FakeClock();
    const backend = new FakeLogBackend();
    let revision = 0;
    let largest = 0;
    for (let life = 0; life < 200; life += 1) {
      const { storage, kill } = restart(clock, backend, 6000);
      for (let writes = 0; writes < 5; writes += 1) {
        const key = '/core/x/a';
        const value = Buffer.from(`${life} ${writes}`);
        const written = revision === 0 ? storage.create(key, value) : storage.update(key, value, revision);
        await clock.settle();
        ({ revision } = await written);
        await clock.advance(lifeMs / 5);
      }
      kill();
      largest = Math.max(largest, backend.records.size);
    }
    const writesOfWindows = (3 * 6000 * 5) / lifeMs;
    assert.ok(largest <= writesOfWindows + 10, `${largest} records are kept of 1000 writes of one key`);
  });
}

it('keeps the history of before a restart for as long as watches may still ask for it', async () => {
  const clock = new FakeClock();
  const backend = new FakeLogBackend();
  const first = restart(clock, backend, 5 * MINUTE);
  const { revision } = await first.storage.create('/core/x/a', Buffer.from('1'));
  const update = await first.storage.update('/core/x/a', Buffer.from('2'), revision);
  await clock.advance(MINUTE);
  first.kill();
  const second = restart(clock, backend, 5 * MINUTE);
  await clock.advance(3 * MINUTE);
  assert.equal((await second.storage.get('/core/x/a', { revision }))?.value.toString(), '1');
  await clock.advance(7 * MINUTE);
  assert.equal(second.storage.compactedRevision(), update.revision);
});

it('compacts after the wall clock is set back by years', async () => {
  const clock = new FakeClock();
  const backend = new FakeLogBackend();
  backend.marks = {
    compactedRevision: 0,
    lastRevision: 0,
    lastCompaction: { revision: 2, atMs: clock.now() + 100_000_000 * MINUTE },
  };
  for (let life = 0; life < 10; life += 1) {
    const { storage, kill } = restart(clock, backend, 5 * MINUTE);
    await storage.create(`/core/x/${life}`, Buffer.from('1'));
    await clock.advance(MINUTE);
    kill();
  }
  assert.ok(backend.marks.compactedRevision > 2);
});

it('is resumed by the next process from what SQLite keeps', async () => {
  const directory = temporaryFolder();
  try {
    const clock = new FakeClock();
    const first = await openSqliteStorage({ directory, clock, logger: silentLogger });
    assert.equal(first.lastCompaction(), undefined);
    const { revision } = await first.create('/core/x/a', Buffer.from('1'));
    await first.compact(0);
    await first.create('/core/x/b', Buffer.from('1'));
    await first.close();
    const second = await openSqliteStorage({ directory, clock, logger: silentLogger });
    assert.deepEqual(second.lastCompaction(), { revision, atMs: clock.now() });
    await second.close();
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

it('history above its limit is compacted early, and writes continue', async () => {
  const clock = new FakeClock();
  const storage = new RevisionLog({ clock, logger: silentLogger, backend: undefined, historyLimitBytes: 100_000 });
  let { revision } = await storage.create('/core/x/a', Buffer.alloc(1000));
  for (let i = 0; i < 500; i += 1) ({ revision } = await storage.update('/core/x/a', Buffer.alloc(1000), revision));
  assert.ok(storage.compactedRevision() > 300);
  assert.ok(storage.revision() - storage.compactedRevision() > 50);
});
