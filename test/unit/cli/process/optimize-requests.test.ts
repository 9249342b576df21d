import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cachedDataVersionTag } from 'node:v8';
import { optimizeRequests } from '../../../../cli/process/optimize-requests.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('V8 optimizes functions after fewer calls, but only once the modules of the start are loaded', async () => {
  const clock = new FakeClock();
  const atStart = cachedDataVersionTag();
  optimizeRequests(clock);
  await clock.advance(1_999);
  assert.equal(cachedDataVersionTag(), atStart);
  await clock.advance(1);
  assert.notEqual(cachedDataVersionTag(), atStart);
});
