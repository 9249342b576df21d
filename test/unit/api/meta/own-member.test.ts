import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ownMember } from '../../../../api/meta/own-member.ts';

test('the value of a key of the map itself is found, and nothing that objects inherit', () => {
  assert.equal(ownMember({ zone: 'a' }, 'zone'), 'a');
  assert.equal(ownMember(JSON.parse('{"__proto__":"b"}') as Record<string, string>, '__proto__'), 'b');
  for (const key of ['constructor', '__proto__', 'toString']) assert.equal(ownMember({ zone: 'a' }, key), undefined);
  assert.equal(ownMember(undefined, 'zone'), undefined);
});
