/** Tests the write-ahead log of a control plane that is killed repeatedly after a few writes. */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { openDatabase } from '../../../../controlplane/storage/sqlite/database.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const RUNS = 20;
const RECORDS_PER_RUN = 25;
const VALUE_BYTES = 40_000;
const MIB = 1024 * 1024;

test('the write-ahead log of a process that is killed repeatedly does not grow without limit', () => {
  const scratch = temporaryFolder();
  try {
    let logBytes = 0;
    for (let run = 0; run < RUNS; run += 1) {
      const directory = join(scratch, String(run));
      if (run === 0) mkdirSync(directory);
      const file = join(directory, 'orchlet.db');
      const database = openDatabase({ file, lockFile: `${file}.pid`, sizeLimitBytes: 0, reserveBytes: 0 });
      for (let at = 0; at < RECORDS_PER_RUN; at += 1) {
        const revision = database.marks.lastRevision + at + 1;
        const columns = { createRevisions: [revision], expiries: [0], lengths: [VALUE_BYTES] };
        const values = new ArrayBuffer(VALUE_BYTES);
        database.append({ revisions: [revision], keys: [`/core/x/${revision}`], ...columns, values });
        database.checkpointIfLong();
      }
      logBytes = Math.max(logBytes, statSync(`${file}-wal`).size);
      // The next process finds the files without the checkpoint of a close, as after a kill.
      cpSync(directory, join(scratch, String(run + 1)), { recursive: true });
      database.close();
    }
    assert.ok(logBytes > 4 * MIB, `the log has ${logBytes} bytes: it was moved too early for this test`);
    assert.ok(logBytes < 10 * MIB, `the log has ${logBytes} bytes, and 20 MB were written`);
    const file = join(scratch, String(RUNS), 'orchlet.db');
    const last = openDatabase({ file, lockFile: `${file}.pid`, sizeLimitBytes: 0, reserveBytes: 0 });
    assert.equal(last.marks.lastRevision, RUNS * RECORDS_PER_RUN);
    last.close();
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
});
