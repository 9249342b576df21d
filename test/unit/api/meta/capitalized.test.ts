import assert from 'node:assert/strict';
import { test } from 'node:test';
import { capitalized } from '../../../../api/meta/capitalized.ts';

test('only the first letter changes', () => {
  assert.equal(capitalized('listPods'), 'ListPods');
  assert.equal(capitalized(''), '');
});
