/** Tests the embedded storage on a small tmpfs that fills up and is emptied again. */
import assert from 'node:assert/strict';
import { rmSync, statfsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { openDatabase } from '../../../../controlplane/storage/sqlite/database.ts';
import { DiskReserve } from '../../../../controlplane/storage/sqlite/disk-reserve.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import { isStorageError, type Storage } from '../../../../controlplane/storage/storage.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { SmallDisk } from '../../../small-disk.ts';
import { until } from '../../../until.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

let disk: SmallDisk;
let clock: FakeClock;

const open = (): Promise<Storage> =>
  openSqliteStorage({
    directory: join(disk.directory, 'storage'),
    clock,
    logger: silentLogger,
    reserveBytes: 16 * 1024 * 1024,
  });
const reserveSize = (): number =>
  statSync(join(disk.directory, 'storage/orchlet.db.reserve'), { throwIfNoEntry: false })?.size ?? 0;
beforeEach(() => {
  disk = new SmallDisk('3m');
  clock = new FakeClock();
});
afterEach(() => disk.remove());

const value = Buffer.alloc(2000, 'v');

async function createUntilFull(storage: Storage): Promise<string[]> {
  const keys: string[] = [];
  for (let at = 0; ; at += 1) {
    try {
      keys.push((await storage.create(`/core/x/${at}`, value)).key);
    } catch (error) {
      assert.ok(isStorageError(error, 'full'), String(error));
      return keys;
    }
  }
}

describe('a full disk', { timeout: 60_000 }, () => {
  it('refuses writes cleanly, serves reads, reports it, and accepts writes again when there is room', async (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    const storage = await open();
    disk.fill();
    const keys = await createUntilFull(storage);
    const { items } = await storage.list('/core/x/');
    assert.equal(items.length, keys.length);
    await storage.check({ writes: false });
    await assert.rejects(storage.check({ writes: true }), /the disk is full/);
    await clock.advance(30_000);
    await assert.rejects(storage.check({ writes: true }), /the disk is full/);
    disk.empty();
    await until('the probe finds room', async () => {
      await clock.advance(6000);
      return storage.check({ writes: true }).then(
        () => true,
        () => undefined,
      );
    });
    await storage.create('/core/x/after', value);
    await storage.close();
    const again = await open();
    assert.equal((await again.list('/core/x/')).items.length, keys.length + 1);
    await again.close();
  });

  it('never brings deleted objects back, whatever compaction managed to remove', async (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    const storage = await open();
    const created = [];
    for (let at = 0; at < 60; at += 1) created.push(await storage.create(`/core/secrets/${at}`, value));
    for (const [at, one] of created.entries()) created[at] = await storage.update(one.key, value, one.revision);
    disk.fill();
    await createUntilFull(storage);
    await storage.compact(storage.revision()).catch(() => undefined);
    const deleted: string[] = [];
    // Deletions are small, so some fit into the existing write-ahead log.
    for (let round = 0; round < 20 && deleted.length < created.length; round += 1) {
      for (const { key, revision } of created) {
        if (deleted.includes(key)) continue;
        await storage.delete(key, revision).then(
          () => deleted.push(key),
          () => undefined,
        );
      }
      await storage.compact(storage.revision()).catch(() => undefined);
      if (round === 10) disk.empty();
    }
    assert.equal(deleted.length, created.length);
    await storage.compact(storage.revision()).catch(() => undefined);
    await storage.close();
    const again = await open();
    assert.deepEqual((await again.list('/core/secrets/')).items, []);
    await again.close();
  });
});

/** Runs probes until the storage accepts writes. */
async function takesWrites(storage: Storage): Promise<void> {
  await until('the storage takes writes', async () => {
    await clock.advance(6000);
    return storage.check({ writes: true }).then(
      () => true,
      () => undefined,
    );
  });
}

async function update(storage: Storage, times: number): Promise<number> {
  let { revision } = await storage.create('/core/x/a', value);
  for (let at = 0; at < times; at += 1) ({ revision } = await storage.update('/core/x/a', value, revision));
  return revision;
}

async function updateUntilFull(storage: Storage, key: string, from: number): Promise<number> {
  for (let revision = from; ;) {
    try {
      ({ revision } = await storage.update(key, value, revision));
    } catch (error) {
      assert.ok(isStorageError(error, 'full'), String(error));
      return revision;
    }
  }
}

describe('a disk that history or objects have filled', { timeout: 60_000 }, () => {
  it('has room again after a compaction, with nothing removed by others', async (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    const storage = await open();
    const { revision } = await storage.create('/core/x/a', value);
    disk.take(1024 * 1024);
    const newest = await updateUntilFull(storage, '/core/x/a', revision);
    assert.ok(newest > revision + 100);
    await storage.compact(newest);
    await takesWrites(storage);
    let latest = newest;
    for (let at = 0; at < 100; at += 1)
      ({ revision: latest } = await storage.update('/core/x/a', Buffer.from(`${at}`), latest));
    await storage.close();
    const again = await open();
    assert.equal((await again.get('/core/x/a'))?.value.toString(), '99');
    await again.close();
  });

  it('has room again by itself: probes compact history before its time', async (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    const storage = await open();
    const revision = await update(storage, 300);
    disk.fill();
    const newest = await updateUntilFull(storage, '/core/x/a', revision);
    await takesWrites(storage);
    await storage.update('/core/x/a', value, newest);
    await storage.close();
  });

  it('does not keep the next process from starting and compacting', async (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    const storage = await open();
    const newest = await update(storage, 300);
    await storage.close();
    disk.fill();
    const again = await open();
    await again.compact(newest);
    await again.update('/core/x/a', value, newest);
    await again.close();
  });

  it('lets all objects be deleted, also together with writes that find no room', async (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    const storage = await open();
    for (let at = 0; at < 200; at += 1) await storage.create(`/core/x/before-${at}`, value);
    disk.fill();
    const keys = await createUntilFull(storage);
    const { items } = await storage.list('/core/x/');
    const writes = Promise.allSettled(keys.map((key) => storage.create(`${key}-more`, Buffer.alloc(20_000))));
    const deletions = items.map(({ key, revision }) => storage.delete(key, revision));
    await Promise.all(deletions);
    assert.ok((await writes).some(({ status }) => status === 'rejected'));
    await takesWrites(storage);
    await storage.create('/core/x/after', value);
    await storage.close();
  });

  it('uses the space that was held back, and holds it again when there is room', async (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    const storage = await open();
    const held = reserveSize();
    assert.ok(held > 300_000, `${held} bytes of 3 MB are held back`);
    disk.fill();
    await createUntilFull(storage);
    assert.equal(reserveSize(), 0);
    disk.empty();
    await takesWrites(storage);
    assert.equal(reserveSize(), held);
    await storage.close();
  });
});

describe('the space that is held back', { timeout: 60_000 }, () => {
  const KIB = 1024;

  it('is an eighth of a small disk, and is held again when there is room for it and a quarter more', (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    disk.resize('8m');
    const file = join(disk.directory, 'reserve');
    const reserve = new DiskReserve(file, 16 * KIB * KIB);
    assert.equal(statSync(file).size, KIB * KIB);
    assert.ok(reserve.release());
    disk.take((8 * KIB - 1200) * KIB);
    reserve.restore();
    assert.ok(reserve.isReleased, '1200 KiB are less than a quarter more than 1024 KiB');
    disk.take((8 * KIB - 1300) * KIB);
    reserve.restore();
    assert.equal(reserve.isReleased, false);
    assert.equal(statSync(file).size, KIB * KIB);
  });
});

describe('a disk with room again', { timeout: 60_000 }, () => {
  it('is used by the next write, before any probe', async (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    const storage = await open();
    disk.fill();
    await createUntilFull(storage);
    disk.empty();
    await storage.create('/core/x/large', Buffer.alloc(200_000));
    await storage.check({ writes: true });
    await storage.close();
  });
});

describe('a checkpoint that found no room', { timeout: 60_000 }, () => {
  it('is tried again by the next probe, though nothing was written', (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    disk.resize('24m');
    const file = join(disk.directory, 'orchlet.db');
    const database = openDatabase({ file, lockFile: `${file}.pid`, sizeLimitBytes: 0, reserveBytes: 0 });
    const lengths = [1_000_000];
    for (let revision = 1; revision <= 9; revision += 1) {
      const columns = { revisions: [revision], keys: [`/core/x/${revision}`], createRevisions: [revision], lengths };
      database.append({ ...columns, expiries: [0], values: new ArrayBuffer(1_000_000) });
    }
    disk.fill();
    assert.throws(() => database.checkpointIfLong(), { code: 'SQLITE_FULL' });
    disk.empty();
    assert.equal(database.checkpointIfLong(), false, 'not with every request');
    database.probe(9);
    assert.equal(database.checkpointIfLong(), true);
    database.close();
  });
});

describe('a write-ahead log that cannot be moved into the file', { timeout: 60_000 }, () => {
  it('makes the storage unready until a probe has moved it', async (t) => {
    if (!disk.isMounted) return t.skip('needs the right to mount');
    disk.resize('24m');
    const directory = join(disk.directory, 'storage');
    const storage = await openSqliteStorage({ directory, clock, logger: silentLogger });
    for (let at = 0; at < 9; at += 1) await storage.create(`/core/x/${at}`, Buffer.alloc(870_000));
    // There is room for the log until a checkpoint is due, and none for the pages that it moves into the file.
    const { bavail, bsize } = statfsSync(disk.directory);
    disk.take(bavail * bsize - 500_000);
    let { revision } = await storage.create('/core/x/small', value);
    let problem: unknown;
    while (problem === undefined) {
      ({ revision } = await storage.update('/core/x/small', value, revision));
      // The checkpoint follows the response, and the first check returns after it.
      await storage.check({ writes: false });
      problem = await storage.check({ writes: true }).catch((error: unknown) => error);
    }
    assert.match(String(problem), /the write-ahead log cannot be moved into the file: .* \(SQLITE_FULL\)/);
    await storage.check({ writes: false });
    disk.empty();
    await takesWrites(storage);
    await storage.update('/core/x/small', value, revision);
    await storage.close();
  });
});

describe('a copy of the storage', { timeout: 60_000 }, () => {
  it('is taken while writes go on, and is never readable by others', async () => {
    const storage = await openSqliteStorage({ directory: join(tmpdirOf(), 'storage'), clock, logger: silentLogger });
    await Promise.all(
      Array.from({ length: 400 }, (_, at) => storage.create(`/core/x/${at}`, Buffer.alloc(50_000, at))),
    );
    const file = join(tmpdirOf(), 'copy.db');
    let isDone = false;
    const copied = storage.copyTo(file).then(() => (isDone = true));
    const modes = new Set<number>();
    let during = 0;
    for (let at = 0; !isDone; at += 1) {
      await storage.create(`/core/during/${at}`, value);
      if (!isDone) during += 1;
      const mode = statSync(file, { throwIfNoEntry: false })?.mode;
      if (mode !== undefined) modes.add(mode & 0o777);
    }
    await copied;
    assert.ok(during >= 3, `${during} writes were answered while 20 MB were copied`);
    assert.deepEqual([...modes], [0o600]);
    await storage.close();
  });
});

let scratch: string | undefined;
function tmpdirOf(): string {
  scratch ??= temporaryFolder();
  return scratch;
}
afterEach(() => {
  if (scratch !== undefined) rmSync(scratch, { recursive: true, force: true });
  scratch = undefined;
});
