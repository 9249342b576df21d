/** Tests that space of the write-ahead log is allocated before commits need it, and that no commit is lost by it. */
import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { LogSpace } from '../../../../controlplane/storage/sqlite/log-space.ts';
import { openDatabase, type LogDatabase } from '../../../../controlplane/storage/sqlite/database.ts';

let directory: string;
let database: LogDatabase;

const open = (name: string): LogDatabase =>
  openDatabase({
    file: join(directory, name),
    lockFile: join(directory, `${name}.pid`),
    sizeLimitBytes: 0,
    reserveBytes: 0,
  });

const logSize = (): number => statSync(join(directory, 'orchlet.db-wal')).size;

function append(revision: number, bytes = 100): void {
  const values = new ArrayBuffer(bytes);
  const columns = { keys: [`/a/b/${revision}`], createRevisions: [revision], expiries: [0], lengths: [bytes] };
  database.append({ revisions: [revision], ...columns, values });
}

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'orchlet-log-space-'));
  database = open('orchlet.db');
});

afterEach(() => {
  database.close();
  rmSync(directory, { recursive: true });
});

test('commits do not extend the log, except the one that finds its space used', () => {
  append(1);
  database.renewLogSpace();
  const size = logSize();
  for (let revision = 2; revision <= 100; revision += 1) {
    append(revision);
    database.renewLogSpace();
  }
  assert.equal(logSize(), size);
  append(101, size);
  assert.ok(logSize() > size);
  const used = logSize();
  database.renewLogSpace();
  assert.ok(logSize() > used);
});

test('no space is allocated beyond the size at which a checkpoint begins', () => {
  append(1, 9 * 1024 * 1024);
  const size = logSize();
  database.renewLogSpace();
  assert.equal(logSize(), size);
});

test('a log with space is recovered whole after the process was killed', () => {
  for (let revision = 1; revision <= 10; revision += 1) {
    append(revision);
    database.renewLogSpace();
  }
  for (const suffix of ['', '-wal'])
    copyFileSync(join(directory, `orchlet.db${suffix}`), join(directory, `copy.db${suffix}`));
  const copy = open('copy.db');
  assert.equal(copy.newest()?.revision, 10);
  copy.close();
});

test('a log that cannot be opened ends the allocation, and not the thread of the storage', () => {
  const space = new LogSpace(join(directory, 'missing.db-wal'));
  space.renew(1024 * 1024);
  space.renew(1024 * 1024);
  space.close();
});
