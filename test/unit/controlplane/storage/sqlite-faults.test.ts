/** Tests the embedded storage with faults of its directory, its file or the disk. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile, rename, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import Database from 'better-sqlite3';
import { silentLogger } from '../../../../api/component/logger.ts';
import { openSqliteStorage } from '../../../../controlplane/storage/sqlite/sqlite-storage.ts';
import { isStorageError, type Storage, type StorageErrorCode } from '../../../../controlplane/storage/storage.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

let directory: string;
beforeEach(async () => {
  directory = temporaryFolder();
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const openIn = (path = directory, sizeLimitBytes = 0): Promise<Storage> =>
  openSqliteStorage({ directory: path, clock: new FakeClock(), logger: silentLogger, sizeLimitBytes });

const refuses = (promise: Promise<unknown>, code: StorageErrorCode, message: RegExp): Promise<void> =>
  assert.rejects(promise, (error: Error) => isStorageError(error, code) && message.test(error.message));

const LOG_HEADER = 32;
const FRAME = 24 + 4096;

async function fill(values: number): Promise<void> {
  const storage = await openIn();
  await Promise.all(Array.from({ length: values }, (_, i) => storage.create(`/core/x/${i}`, Buffer.alloc(3000, 'v'))));
  await storage.close();
}

/**
 * Leaves a write-ahead log with `values` transactions that are not in the database file yet, like a killed process, and without
 * the space after its last frame.
 */
async function killedAfter(values: number): Promise<string> {
  const storage = await openIn();
  for (let i = 0; i < values; i += 1) await storage.create(`/core/x/${i}`, Buffer.alloc(3000, 'v'));
  const log = join(directory, 'orchlet.db-wal');
  const bytes = await readFile(log);
  await storage.close();
  const used = bytes.findLastIndex((byte) => byte !== 0) + 1;
  await writeFile(log, bytes.subarray(0, LOG_HEADER + Math.ceil((used - LOG_HEADER) / FRAME) * FRAME));
  return log;
}

async function damage(file: string, at: number, bytes = 16): Promise<void> {
  const handle = await open(file, 'r+');
  await handle.write(Buffer.alloc(bytes, 0x5a), 0, bytes, at);
  await handle.close();
}

describe('the write-ahead log of a killed process', () => {
  const count = async (): Promise<number> => {
    const storage = await openIn();
    const { items } = await storage.list('/core/x/');
    await storage.close();
    return items.length;
  };

  it('is taken whole where it is whole', async () => {
    await killedAfter(30);
    assert.equal(await count(), 30);
  });

  for (const cut of [1, 100, FRAME - 24, FRAME - 1]) {
    it(`may end in a transaction that was never finished: ${cut} bytes are missing`, async () => {
      const log = await killedAfter(30);
      await truncate(log, (await stat(log)).size - cut);
      assert.equal(await count(), 29);
    });
  }

  for (const spaceBytes of [0, 1024 * 1024]) {
    it(`may end in a transaction whose last page is half-written, before ${spaceBytes} bytes of space`, async () => {
      const log = await killedAfter(30);
      const { size } = await stat(log);
      await damage(log, size - 2000);
      await truncate(log, size + spaceBytes);
      assert.equal(await count(), 29);
    });
  }

  for (const [name, at] of [
    ['the page of an early transaction', LOG_HEADER + 5 * FRAME + 1000],
    ['the header of one of its frames', LOG_HEADER + 5 * FRAME],
    ['its own header', 20],
  ] as const) {
    it(`is refused with a remedy where ${name} is damaged, and again at the next start`, async () => {
      const log = await killedAfter(30);
      await damage(log, at);
      await refuses(openIn(), 'unusable', /db-wal is damaged: .*Restore a backup; or, .*move this file away/);
      await refuses(openIn(), 'unusable', /db-wal is damaged/);
      await rename(log, `${log}.away`);
      await (await openIn()).close();
    });
  }
});

describe('the embedded storage', () => {
  it('refuses a second opening and names the process', async () => {
    const storage = await openIn();
    await refuses(openIn(), 'locked', new RegExp(`in use by process ${process.pid}$`));
    await storage.close();
    await (await openIn()).close();
  });

  it('is free again after its holder was killed', async () => {
    const script = join(import.meta.dirname, '../../../integration/storage-crash-child.ts');
    const child = spawn(process.execPath, [script, directory, join(directory, 'notes')], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(child.stdout, 'data');
    await refuses(openIn(), 'locked', new RegExp(`in use by process ${child.pid}$`));
    child.kill('SIGKILL');
    child.stdout.resume();
    await once(child, 'exit');
    await (await openIn()).close();
  });

  it('is readable by its owner only', async () => {
    await fill(1);
    assert.equal((await stat(join(directory, 'orchlet.db'))).mode & 0o077, 0);
  });

  it('says that the directory is a file', async () => {
    await writeFile(join(directory, 'file'), '');
    await refuses(openIn(join(directory, 'file')), 'unusable', /file is not a directory$/);
  });

  it(
    'says that the directory is not writable',
    { skip: process.getuid?.() === 0 && 'root may write everywhere' },
    async () => {
      await refuses(openIn('/proc/self/task'), 'unusable', /writable|cannot be made/);
    },
  );

  it('refuses a file that is not an SQLite database', async () => {
    await writeFile(join(directory, 'orchlet.db'), 'x'.repeat(8192));
    await refuses(openIn(), 'unusable', /is not an SQLite database$/);
  });

  it("refuses another program's database", async () => {
    const other = new Database(join(directory, 'orchlet.db'));
    other.exec('CREATE TABLE theirs (a)');
    other.close();
    await refuses(openIn(), 'unusable', /is a database of another program$/);
  });

  it('refuses a format that a newer version has written', async () => {
    await fill(1);
    const database = new Database(join(directory, 'orchlet.db'));
    database.pragma('user_version = 7');
    database.close();
    await refuses(openIn(), 'unusable', /has format 7, this version of orchlet knows 1/);
  });

  it('refuses a file with a damaged page, wherever it is', async () => {
    await fill(40);
    const file = await open(join(directory, 'orchlet.db'), 'r+');
    const { size } = await file.stat();
    await file.write(Buffer.alloc(64, 0x5a), 0, 64, Math.floor(size / 2 / 4096) * 4096 + 1800);
    await file.close();
    await refuses(openIn(), 'unusable', /is damaged/);
  });

  it('refuses writes on a full disk, keeps all data, and resumes when there is room', async () => {
    const storage = await openIn(directory, 400_000);
    const acknowledged: string[] = [];
    for (let i = 0; ; i += 1) {
      try {
        acknowledged.push((await storage.create(`/core/x/${i}`, Buffer.alloc(3000, 'v'))).key);
      } catch (error) {
        assert.ok(isStorageError(error, 'full'), String(error));
        break;
      }
    }
    assert.ok(acknowledged.length > 50);
    assert.equal((await storage.list('/core/x/')).items.length, acknowledged.length);
    const newest = storage.revision();
    await storage.close();
    const roomier = await openIn(directory, 500_000);
    assert.deepEqual(
      (await roomier.list('/core/x/')).items.map((item) => item.key),
      acknowledged.sort(),
    );
    assert.ok((await roomier.create('/core/x/more', Buffer.alloc(3000))).revision > newest);
    await roomier.close();
  });

  it('gives room back: a file does not grow with what is overwritten and compacted', async () => {
    const storage = await openIn();
    let { revision } = await storage.create('/core/x/a', Buffer.alloc(20_000));
    const size = async (): Promise<number> => (await stat(join(directory, 'orchlet.db'))).size;
    let first = 0;
    for (let round = 0; round < 10; round += 1) {
      for (let i = 0; i < 60; i += 1)
        ({ revision } = await storage.update('/core/x/a', Buffer.alloc(20_000), revision));
      await storage.compact(revision);
      if (round === 4) first = await size();
    }
    await storage.close();
    assert.ok((await size()) <= Math.max(first, 1) + 3_000_000, `${first} -> ${await size()}`);
  });
});

describe('a file that others have changed', () => {
  const change = async (sql: string): Promise<void> => {
    await fill(3);
    const database = new Database(join(directory, 'orchlet.db'));
    database.exec(sql);
    database.close();
  };
  const RENAMED = 'ALTER TABLE log RENAME TO kept;';

  for (const [what, sql] of [
    ['a trigger that changes what is written', 'CREATE TRIGGER t AFTER INSERT ON log BEGIN DELETE FROM log; END'],
    [
      'a view without an end in the place of the log',
      `${RENAMED} CREATE VIEW log AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
       SELECT i AS revision, kept.key, kept.value, kept.created, kept.expires, kept.checksum FROM n, kept`,
    ],
    ['a table of its own', 'CREATE TABLE more (a)'],
    ['an index on an expression', 'CREATE INDEX i ON log (length(value))'],
  ] as const)
    it(`is refused with ${what}`, async () => {
      await change(sql);
      await refuses(openIn(), 'unusable', /which is not of orchlet; restore it from a backup/);
    });

  for (const [what, sql] of [
    ['a key of bytes', 'UPDATE log SET key = CAST(key AS BLOB) WHERE revision = (SELECT min(revision) FROM log)'],
    ['a value of text', 'UPDATE log SET value = CAST(value AS TEXT) WHERE revision = (SELECT min(revision) FROM log)'],
    ['a creation of text', "UPDATE log SET created = 'x' WHERE revision = (SELECT min(revision) FROM log)"],
    ['a creation of a fraction', 'UPDATE log SET created = 1.5 WHERE revision = (SELECT min(revision) FROM log)'],
    ['an expiry beyond all times', 'UPDATE log SET expires = 9e300 WHERE revision = (SELECT min(revision) FROM log)'],
    ['a revision below zero', 'UPDATE log SET revision = -7 WHERE revision = (SELECT min(revision) FROM log)'],
  ] as const)
    it(`is refused with ${what}`, async () => {
      await change(sql);
      await refuses(openIn(), 'unusable', /is damaged at revision -?\d+; restore it from a backup/);
    });

  for (const [what, sql] of [
    [
      'a revision after which there is no other',
      'UPDATE log SET revision = 9223372036854775807 WHERE revision = (SELECT min(revision) FROM log)',
    ],
    ['a mark that is none', "UPDATE mark SET revision = 'x' WHERE name = 'last'"],
    ['no mark', "DELETE FROM mark WHERE name = 'compacted'"],
  ] as const)
    it(`is refused with ${what}`, async () => {
      await change(sql);
      await refuses(openIn(), 'unusable', /has an invalid revision; restore it from a backup/);
    });
});
