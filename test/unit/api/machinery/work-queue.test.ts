/** Tests the queue of keys: one worker for a key, backoff, and delays. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runWorkers, WorkQueue } from '../../../../api/machinery/work-queue.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('a key is handled by one worker at a time, and again when it was added meanwhile', async () => {
  const clock = new FakeClock();
  const queue = new WorkQueue({ clock });
  const stop = new AbortController();
  const handled: string[] = [];
  let inFlight = 0;
  const done = runWorkers({
    queue,
    workers: 3,
    signal: stop.signal,
    onError: () => undefined,
    reconcile: async (key) => {
      assert.equal(++inFlight, 1);
      handled.push(key);
      await clock.sleep(100);
      inFlight--;
    },
  });
  queue.add('a');
  queue.add('a');
  await clock.advance(50);
  queue.add('a');
  queue.add('a');
  await clock.advance(500);
  assert.deepEqual(handled, ['a', 'a']);
  stop.abort();
  await done;
});

test('failures come back later and later, and a success forgets them', async () => {
  const clock = new FakeClock();
  const queue = new WorkQueue({ clock, baseDelayMs: 10, maxDelayMs: 40 });
  const stop = new AbortController();
  const times: number[] = [];
  const done = runWorkers({
    queue,
    workers: 1,
    signal: stop.signal,
    onError: () => undefined,
    reconcile: () => {
      times.push(clock.monotonic());
      return times.length <= 4 ? Promise.reject(new Error('no')) : Promise.resolve();
    },
  });
  queue.add('a');
  await clock.advance(1000);
  assert.deepEqual(times, [0, 10, 30, 70, 110]);
  assert.equal(queue.failures('a'), 0);
  assert.equal(queue.idle, true);
  stop.abort();
  await done;
});

test('the shortest of several delays of a key counts', async () => {
  const clock = new FakeClock();
  const queue = new WorkQueue({ clock });
  queue.addAfter('a', 100);
  queue.addAfter('a', 50);
  queue.addAfter('a', 70);
  await clock.advance(50);
  assert.equal(await queue.next(), 'a');
  queue.done('a');
  await clock.advance(100);
  assert.equal(queue.length, 0);
});
