import assert from 'node:assert/strict';
import { test } from 'node:test';
import { background, untilDone } from '../../../../api/machinery/background.ts';
import { Backoff } from '../../../../api/machinery/backoff.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

function recorder(): { lines: [object, string][]; error: (fields: object, message: string) => void } {
  const lines: [object, string][] = [];
  return { lines, error: (fields, message) => void lines.push([fields, message]) };
}

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('a failure in the background is logged with its objects and does not escape', async () => {
  const logger = recorder();
  const error = new Error('boom');
  background(Promise.reject(error), { logger, what: 'Removing the mirror pod', fields: { pod: 'a/b' } });
  await settle();
  assert.deepEqual(logger.lines, [[{ pod: 'a/b', err: error }, 'Removing the mirror pod failed']]);
});

test('a failure after the abort is a cancellation, which is not logged', async () => {
  const logger = recorder();
  background(Promise.reject(new Error('aborted')), { logger, what: 'Following', signal: AbortSignal.abort() });
  await settle();
  assert.deepEqual(logger.lines, []);
});

test('work is tried again by the back-off until it succeeds', async () => {
  const clock = new FakeClock();
  const failures: number[] = [];
  let tries = 0;
  const done = untilDone(() => (++tries < 3 ? Promise.reject(new Error('boom')) : Promise.resolve('done')), {
    clock,
    backoff: new Backoff({ firstMs: 100, longestMs: 1_000 }),
    signal: new AbortController().signal,
    onError: (_error, count) => failures.push(count),
  });
  await clock.advance(100);
  assert.equal(tries, 2);
  await clock.advance(200);
  assert.equal(await done, 'done');
  assert.deepEqual(failures, [1, 2]);
});

test('the abort ends the attempts', async () => {
  const clock = new FakeClock();
  const stop = new AbortController();
  const done = untilDone(() => Promise.reject(new Error('boom')), {
    clock,
    backoff: new Backoff({ firstMs: 100, longestMs: 1_000 }),
    signal: stop.signal,
    onError: () => undefined,
  });
  await clock.settle();
  stop.abort();
  assert.equal(await done, undefined);
  assert.equal(clock.pendingTimers, 0);
});
