import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tokenLifetimeErrors } from '../../../../api/kinds/token-lifetime.ts';

test('a token lives from ten minutes to 2^32 seconds', () => {
  const counts = [599, 600, 2 ** 32, 2 ** 32 + 1].map((seconds) => tokenLifetimeErrors('spec.x', seconds).length);
  assert.deepEqual(counts, [1, 0, 0, 1]);
});
