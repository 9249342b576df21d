/** The rows of a database are used only if their columns have the types of the format. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRevision, isWhole } from '../../../../controlplane/storage/sqlite/database-format.ts';
import { checksumOf } from '../../../../controlplane/storage/sqlite/row-checksum.ts';

const value = Buffer.from('{}');
const row = { revision: 7, key: '/core/x/a', value, created: 7, expires: 0, checksum: checksumOf('/core/x/a', value) };

test('a row is whole with its types and its checksum, and a deletion without a value', () => {
  assert.ok(isWhole(row));
  assert.ok(isWhole({ ...row, value: null, checksum: checksumOf(row.key, null) }));
});

for (const [column, other] of [
  ['revision', 2 ** 53],
  ['revision', 1.5],
  ['key', Buffer.from(row.key)],
  ['value', '{}'],
  ['created', null],
  ['expires', Number.POSITIVE_INFINITY],
  ['checksum', row.checksum + 1],
] as const)
  test(`a row is damaged with ${String(other)} as ${column}`, () => {
    assert.equal(isWhole({ ...row, [column]: other }), false);
  });

test('a revision has room for further ones', () => {
  assert.ok(isRevision(2 ** 52));
  assert.equal(isRevision(2 ** 52 + 1), false);
  assert.equal(isRevision(-1), false);
});
