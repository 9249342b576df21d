import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cachedDataVersionTag } from 'node:v8';
import { optimizeRequests } from '../../../../cli/process/optimize-requests.ts';

test('V8 gets other flags, under which it does not accept the compiled modules of the start', () => {
  const atStart = cachedDataVersionTag();
  optimizeRequests();
  assert.notEqual(cachedDataVersionTag(), atStart);
});
