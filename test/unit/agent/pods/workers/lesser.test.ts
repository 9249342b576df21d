import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lesser } from '../../../../../agent/pods/workers/lesser.ts';

test('an absent number does not count, and zero does', () => {
  assert.equal(lesser(3, 0), 0);
  assert.equal(lesser(undefined, 3), 3);
  assert.equal(lesser(3, undefined), 3);
  assert.equal(lesser(undefined, undefined), undefined);
});
