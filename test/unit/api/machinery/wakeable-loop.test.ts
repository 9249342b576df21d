import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { WakeableLoop } from '../../../../api/machinery/wakeable-loop.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const unexpected = (error: unknown): void => assert.fail(String(error));

test('a turn follows after its delay or when the loop is woken', async () => {
  const clock = new FakeClock();
  const loop = new WakeableLoop({ clock, onError: unexpected });
  const stop = new AbortController();
  let turns = 0;
  const running = loop.run(stop.signal, () => {
    turns++;
    return Promise.resolve(1_000);
  });
  await clock.settle();
  assert.equal(turns, 1);
  await clock.advance(999);
  assert.equal(turns, 1);
  await clock.advance(1);
  assert.equal(turns, 2);
  loop.wake();
  await clock.settle();
  assert.equal(turns, 3);
  stop.abort();
  await running;
  assert.equal(clock.pendingTimers, 0);
});

test('wakes during a turn lead to exactly one more turn', async () => {
  const clock = new FakeClock();
  const loop = new WakeableLoop({ clock, onError: unexpected });
  const stop = new AbortController();
  let turns = 0;
  const running = loop.run(stop.signal, () => {
    if (turns++ === 0) for (let i = 0; i < 3; i++) loop.wake();
    return Promise.resolve(Number.POSITIVE_INFINITY);
  });
  await clock.settle();
  assert.equal(turns, 2);
  stop.abort();
  await running;
});

test('a failed turn is reported and retried after the backoff', async () => {
  const clock = new FakeClock();
  const failures: number[] = [];
  const loop = new WakeableLoop({ clock, onError: (_error, count) => failures.push(count) });
  const stop = new AbortController();
  let turns = 0;
  const running = loop.run(stop.signal, () => {
    turns++;
    if (turns < 4) throw new Error('boom');
    return Promise.resolve(Number.POSITIVE_INFINITY);
  });
  await clock.advance(1_000);
  await clock.advance(2_000);
  await clock.advance(4_000);
  assert.deepEqual([turns, failures], [4, [1, 2, 3]]);
  stop.abort();
  await running;
});

test('an abort ends the loop after the present turn, and leaves no listener and no timer', async () => {
  const clock = new FakeClock();
  const loop = new WakeableLoop({ clock, onError: unexpected });
  const stop = new AbortController();
  const gate = Promise.withResolvers<void>();
  let hasEnded = false;
  const running = loop
    .run(stop.signal, async () => {
      await gate.promise;
      return 1_000;
    })
    .then(() => (hasEnded = true));
  await clock.settle();
  stop.abort();
  await clock.settle();
  assert.equal(hasEnded, false);
  gate.resolve();
  await running;
  assert.deepEqual([clock.pendingTimers, getEventListeners(stop.signal, 'abort').length], [0, 0]);
});

test('listeners do not grow with the turns', async () => {
  const clock = new FakeClock();
  const loop = new WakeableLoop({ clock, onError: unexpected });
  const stop = new AbortController();
  const running = loop.run(stop.signal, () => Promise.resolve(10));
  await clock.advance(1_000);
  assert.equal(getEventListeners(stop.signal, 'abort').length, 1);
  stop.abort();
  await running;
});
