/** Audit ids are random UUIDs, because clients and audit backends treat them as unique. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newAuditId } from '../../../../controlplane/server/audit-id.ts';

test('audit ids are distinct UUIDs of version 4', () => {
  const ids = Array.from({ length: 1000 }, newAuditId);
  for (const id of ids) assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(new Set(ids).size, ids.length);
});

test('every digit of an audit id that is not fixed takes every value', () => {
  const ids = Array.from({ length: 2000 }, newAuditId);
  for (let at = 0; at < 36; at += 1) {
    if ([8, 13, 18, 23, 14].includes(at)) continue;
    assert.equal(new Set(ids.map((id) => id[at])).size, at === 19 ? 4 : 16, `digit ${at}`);
  }
});
