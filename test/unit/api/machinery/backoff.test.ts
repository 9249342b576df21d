import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Backoff, backoffDelay } from '../../../../api/machinery/backoff.ts';

const range = { firstMs: 100, longestMs: 1_000 };

test('delays double up to the longest, however many failures there are', () => {
  assert.deepEqual(
    [0, 1, 2, 3, 4, 5, 6, 10_000].map((failures) => backoffDelay(failures, range)),
    [100, 100, 200, 400, 800, 1_000, 1_000, 1_000],
  );
});

test('a success resets the backoff', () => {
  const backoff = new Backoff(range);
  assert.deepEqual([backoff.next(), backoff.next(), backoff.failures], [100, 200, 2]);
  backoff.reset();
  assert.deepEqual([backoff.failures, backoff.next()], [0, 100]);
});

test('jitter adds up to its share', () => {
  const backoff = new Backoff({ ...range, jitter: 0.5, random: () => 1 });
  assert.deepEqual([backoff.next(), backoff.next()], [150, 300]);
});
