/** Tests which outcome of a write each error of SQLite means. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { outcomeOf } from '../../../../controlplane/storage/sqlite/sqlite-errors.ts';

test('an extended code has the outcome of its primary code', () => {
  assert.equal(outcomeOf('SQLITE_IOERR_FSYNC'), 'unknown');
  assert.equal(outcomeOf('SQLITE_BUSY_SNAPSHOT'), 'refused');
  assert.equal(outcomeOf('SQLITE_FULL'), 'full');
});

test('with an unlisted error, or one that is not from SQLite, the outcome is unknown', () => {
  for (const code of ['SQLITE_NEW_IN_A_LATER_VERSION', '', 'EIO']) assert.equal(outcomeOf(code), 'unknown');
});
