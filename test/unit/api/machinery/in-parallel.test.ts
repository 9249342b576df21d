/** Tests the order of the results, and how many items are worked on at the same time. */
import assert from 'node:assert/strict';
import { setImmediate } from 'node:timers/promises';
import { test } from 'node:test';
import { inParallel } from '../../../../api/machinery/in-parallel.ts';

test('results are in the order of the items, and no more than the width run at the same time', async () => {
  let running = 0;
  let most = 0;
  const results = await inParallel([5, 1, 4, 2, 3], 2, async (turns) => {
    running += 1;
    most = Math.max(most, running);
    for (let turn = 0; turn < turns; turn += 1) await setImmediate();
    running -= 1;
    return turns * 10;
  });
  assert.deepEqual(results, [50, 10, 40, 20, 30]);
  assert.equal(most, 2);
});

test('nothing is worked on without items, and the first error is passed on', async () => {
  assert.deepEqual(await inParallel([], 4, () => assert.fail()), []);
  await assert.rejects(
    inParallel([1, 2], 1, (item) => Promise.reject(new Error(String(item)))),
    { message: '1' },
  );
});
