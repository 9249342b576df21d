/** Tests the thread that owns the file of the database, and what it reads of it. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { Worker } from 'node:worker_threads';
import Database from 'better-sqlite3';
import { LogRows } from '../../../../controlplane/storage/sqlite/log-rows.ts';
import { OPENING, type WorkerOptions, type WorkerResponse } from '../../../../controlplane/storage/sqlite/protocol.ts';
import { checksumOf } from '../../../../controlplane/storage/sqlite/row-checksum.ts';
import { StorageThread } from '../../../../controlplane/storage/sqlite/storage-thread.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

async function optionsOf(t: TestContext): Promise<WorkerOptions> {
  const directory = temporaryFolder();
  t.after(() => rm(directory, { recursive: true }));
  const file = join(directory, 'orchlet.db');
  return { file, lockFile: `${file}.pid`, sizeLimitBytes: 0, reserveBytes: 0, sendsRecords: false };
}

const records = {
  revisions: [3, 4, 6],
  keys: ['/a/b/c', '/a/b/d', '/a/b/c'],
  createRevisions: [3, 4, 3],
  expiries: [0, 9, 0],
  lengths: [1, 2, -1],
};
const values = (): ArrayBuffer => new Uint8Array([1, 2, 3]).buffer;

test('a file that cannot be opened is reported with the id of the opening', async (t) => {
  const options = await optionsOf(t);
  await writeFile(options.file, 'this is no database, but a text of some length'.repeat(100));
  const worker = new Worker(new URL('../../../../controlplane/storage/sqlite/worker.ts', import.meta.url));
  worker.postMessage(options);
  const [response] = (await once(worker, 'message')) as [WorkerResponse];
  assert.ok(
    response.type === 'failed' && response.id === OPENING && /is not an SQLite database/.test(response.message),
  );
  await worker.terminate();
});

test('requests have their results, and records are sent at the opening only on request', async (t) => {
  const options = await optionsOf(t);
  const thread = new StorageThread();
  const { chunks, newest } = await thread.open(options);
  assert.deepEqual([chunks, newest], [[], undefined]);
  assert.equal(
    await thread.ask((id) => ({ type: 'append', id, records: { ...records, values: values() } })),
    undefined,
  );
  const mark = { revision: 4, checksum: checksumOf('/a/b/d', Buffer.from([2, 3])) };
  assert.equal(await thread.ask((id) => ({ type: 'has', id, mark })), true);
  assert.equal(await thread.ask((id) => ({ type: 'has', id, mark: { ...mark, revision: 5 } })), false);
  const page = await thread.ask((id) => ({ type: 'read', id, after: 3, limitBytes: 1 }));
  assert.ok(typeof page === 'object');
  assert.deepEqual(
    [page.records.revisions, page.records.expiries, Buffer.from(page.records.values)],
    [[4], [9], Buffer.from([2, 3])],
  );
  await thread.close();
  const again = new StorageThread();
  assert.deepEqual(
    (await again.open({ ...options, sendsRecords: true })).chunks.flatMap(({ revisions }) => revisions),
    [3, 4, 6],
  );
  await again.close();
});

test('a thread that opened nothing is closed, and is lost for a later opening', async (t) => {
  const thread = new StorageThread();
  await thread.close();
  await assert.rejects(thread.open(await optionsOf(t)), { code: 'unknown-outcome' });
});

test('a request that fails is rejected, and neither that nor closing counts as a loss', async (t) => {
  const thread = new StorageThread();
  await thread.open(await optionsOf(t));
  const lost: Error[] = [];
  thread.onLost((error) => void lost.push(error));
  // The thread throws for records that lack their columns.
  const broken = { type: 'append', id: 0, records: undefined } as unknown as Parameters<Worker['postMessage']>[0];
  await assert.rejects(thread.ask((id) => ({ ...(broken as object), id }) as never));
  await thread.close();
  assert.deepEqual(lost, []);
});

for (const [name, through, obsolete] of [
  ['nothing before the first record', 2, []],
  ['no value that is still current at that revision', 4, []],
  ['values that a deletion hides, and the deletion', 6, [3, 6]],
] as const)
  test(`a compaction removes ${name}`, () => {
    const database = new Database(':memory:');
    database.exec(`CREATE TABLE log (revision INTEGER PRIMARY KEY, key TEXT, value BLOB, created INTEGER, expires INTEGER, checksum INTEGER);
      CREATE TABLE mark (name TEXT PRIMARY KEY, revision INTEGER);`);
    const insert = database.prepare('INSERT INTO log VALUES (?, ?, ?, ?, 0, 0)');
    for (const [at, revision] of records.revisions.entries())
      insert.run(revision, records.keys[at], records.lengths[at] === -1 ? null : Buffer.from('v'), revision);
    assert.deepEqual(new LogRows(database, 'memory').obsolete(through), obsolete);
    database.close();
  });
