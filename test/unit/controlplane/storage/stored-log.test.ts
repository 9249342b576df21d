/** Tests the stored log of the storage in SQLite, as a standby reads it, and the copy that it makes of it. */
import type { StoredLog } from '../../../../controlplane/storage/stored-log.ts';
import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { REVISION_LEAP } from '../../../../controlplane/storage/log-backend.ts';
import { openDatabase } from '../../../../controlplane/storage/sqlite/database.ts';
import { LogCopy } from '../../../../controlplane/storage/sqlite/log-copy.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../../../../controlplane/storage/storage.ts';
import type { ValueTransformer } from '../../../../controlplane/storage/value-transformer.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

/** Reverses the bytes. It is no cipher: it only shows which form of a value is stored. */
const reversing: ValueTransformer = {
  seal: (_key, value) => Buffer.from(value).reverse(),
  unlock: () => Promise.resolve(),
  open: (_key, kept) => Buffer.from(kept).reverse(),
};

async function directoryOf(t: TestContext): Promise<string> {
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true }));
  return directory;
}

async function opened(t: TestContext, directory: string): Promise<{ storage: Storage; log: StoredLog }> {
  const storage = await openSqliteStorage({
    directory,
    clock: new FakeClock(),
    logger: silentLogger,
    transformer: reversing,
  });
  t.after(() => storage.close());
  assert.ok(storage.log);
  return { storage, log: storage.log };
}

async function readAll(log: StoredLog, after: number): Promise<{ key: string; value: string | undefined }[]> {
  const found: { key: string; value: string | undefined }[] = [];
  for (let at = after; ;) {
    const { records } = await log.read(at);
    if (records.revisions.length === 0) return found;
    let offset = 0;
    for (const [index, key] of records.keys.entries()) {
      const length = records.lengths[index] ?? -1;
      found.push({
        key,
        value: length < 0 ? undefined : Buffer.from(records.values, offset, length).toString(),
      });
      offset += Math.max(0, length);
    }
    at = records.revisions.at(-1) ?? 0;
  }
}

async function copyAll(log: StoredLog, copy: LogCopy): Promise<void> {
  for (;;) {
    const { records, compactedRevision } = await log.read(copy.lastRevision);
    if (records.revisions.length === 0) {
      await copy.compact({ compactedRevision, lastCompaction: undefined });
      return;
    }
    await copy.append(records);
  }
}

function rowsOf(directory: string): unknown[] {
  const file = join(directory, 'orchlet.db');
  const database = openDatabase({ file, lockFile: `${file}.pid`, sizeLimitBytes: 0, reserveBytes: 0 });
  try {
    return [...database.load()].map((records) => ({ ...records, values: Buffer.from(records.values).toString() }));
  } finally {
    database.close();
  }
}

test('the log is read as it is on the disk, deletions included, in pages that follow each other', async (t) => {
  const { storage, log } = await opened(t, await directoryOf(t));
  const first = await storage.create('/core/x/a', Buffer.from('abc'));
  await storage.create('/core/x/large', Buffer.alloc(700_000, 'z'));
  await storage.create('/core/x/b', Buffer.from('def'));
  await storage.delete('/core/x/a', first.revision);
  assert.equal((await log.read(0)).records.revisions.length, 1, 'a page ends before what is too large for it');
  const all = await readAll(log, 0);
  assert.deepEqual(
    all.map(({ key, value }) => [key, value?.length === 700_000 ? 'large' : value]),
    [
      ['/core/x/a', 'cba'],
      ['/core/x/large', 'large'],
      ['/core/x/b', 'fed'],
      ['/core/x/a', undefined],
    ],
  );
  assert.deepEqual(await readAll(log, storage.revision()), []);
});

test('a page has whole transactions alone, also where one commit is longer than a page', async (t) => {
  const { storage, log } = await opened(t, await directoryOf(t));
  const value = Buffer.alloc(200_000, 'v');
  const write = (name: string): Promise<unknown> =>
    storage.create(`/core/x/${name}`, value, { transactionWrites: [{ key: `/core/y/${name}`, value }] });
  for (let round = 0; round < 3; round += 1) {
    await write(`single-${round}`);
    await Promise.all(Array.from({ length: 5 }, (_, at) => write(`joint-${round}-${at}`)));
  }
  let [pages, records] = [0, 0];
  for (let at = 0; ;) {
    const { records: page } = await log.read(at);
    const count = (resource: string): number => page.keys.filter((key) => key.startsWith(resource)).length;
    assert.equal(count('/core/x/'), count('/core/y/'));
    if (page.revisions.length === 0) break;
    at = page.revisions.at(-1) ?? 0;
    pages += 1;
    records += page.revisions.length;
  }
  assert.equal(records, 36);
  assert.ok(pages > 3, `${pages} pages`);
});

test('compacted records stay while they are held, and a page says up to where some may be missing', async (t) => {
  const { storage, log } = await opened(t, await directoryOf(t));
  const first = await storage.create('/core/x/a', Buffer.from('abc'));
  const second = await storage.update('/core/x/a', Buffer.from('def'), first.revision);
  const release = log.holdRemovals();
  await storage.compact(second.revision);
  const held = await log.read(0);
  assert.deepEqual([held.records.revisions, held.compactedRevision], [[first.revision, second.revision], 0]);
  release();
  release();
  await storage.compact(second.revision);
  await storage.check({ writes: true });
  const { records, compactedRevision } = await log.read(0);
  assert.deepEqual([records.revisions, compactedRevision], [[second.revision], second.revision]);
});

test('a fenced storage refuses writes with the reason, is not ready for them, and finishes those that run', async (t) => {
  const { storage } = await opened(t, await directoryOf(t));
  const running = storage.create('/core/x/a', Buffer.from('abc'));
  const revision = await storage.fence?.('another one took over');
  assert.equal((await running).revision, revision);
  await assert.rejects(storage.create('/core/x/b', Buffer.from('abc')), {
    code: 'unavailable',
    message: 'another one took over',
  });
  await assert.rejects(storage.check({ writes: true }), { message: 'another one took over' });
  await storage.check({ writes: false });
  assert.equal((await storage.get('/core/x/a'))?.value.toString(), 'abc');
});

test('a copy has the rows of the original after each of its compactions, and recognizes the original', async (t) => {
  const [source, target] = [await directoryOf(t), await directoryOf(t)];
  const { storage, log } = await opened(t, source);
  const copy = await LogCopy.open(target);
  for (let round = 0; round < 5; round += 1) {
    for (const name of ['a', 'b', 'c']) {
      const key = `/core/x/${name}`;
      const current = await storage.get(key);
      if (current === undefined) await storage.create(key, Buffer.from(`${name}${round}`));
      else if ((round + name.charCodeAt(0)) % 3 === 0) await storage.delete(key, current.revision);
      else await storage.update(key, Buffer.from(`${name}${round}`), current.revision);
    }
    if (round % 2 === 1) await storage.compact(storage.revision() - 1);
    await copyAll(log, copy);
  }
  assert.equal(copy.lastRevision, storage.revision());
  assert.ok(copy.newest !== undefined && (await log.has(copy.newest)));
  assert.ok(!(await log.has({ ...copy.newest, checksum: copy.newest.checksum + 1 })));
  await copy.close();
  await storage.close();
  assert.deepEqual(rowsOf(target), rowsOf(source));
  const again = await LogCopy.open(target);
  assert.deepEqual([again.lastRevision, again.newest], [copy.lastRevision, copy.newest]);
  await again.close();
});

test('records that a copy has already are skipped, and after a leap its next revision is one that nobody saw', async (t) => {
  const [source, target] = [await directoryOf(t), await directoryOf(t)];
  const { storage, log } = await opened(t, source);
  await storage.create('/core/x/a', Buffer.from('abc'));
  const copy = await LogCopy.open(target);
  await copyAll(log, copy);
  const last = await storage.create('/core/x/b', Buffer.from('def'));
  await copy.append((await log.read(0)).records);
  await copy.append((await log.read(0)).records);
  await copy.leap();
  await copy.close();
  const promoted = await opened(t, target);
  assert.equal((await promoted.storage.get('/core/x/b'))?.value.toString(), 'def');
  const next = await promoted.storage.create('/core/x/c', Buffer.from('ghi'));
  assert.equal(next.revision, last.revision + REVISION_LEAP + 1);
});
