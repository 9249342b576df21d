/** Tests how many batches a group of watches keeps, by their number and the size of their objects. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Batch } from '../../../../controlplane/storage/event-batches.ts';
import { RecentBatches } from '../../../../controlplane/storage/recent-batches.ts';

/** Returns batches of the revisions from 1 on, whose objects have this size. */
const batches = (count: number, bytes: number): Batch[] =>
  Array.from({ length: count }, (_, at) => ({ first: at + 1, revision: at + 1, events: [], bytes }));

const filled = (count: number, bytes: number, groups = 1): RecentBatches => {
  const recent = new RecentBatches(0);
  for (const batch of batches(count, bytes)) recent.add([batch], groups);
  return recent;
};

test('small objects stay in thousands of batches, fewer of each group if there are many groups', () => {
  assert.equal(filled(4096, 100).after(0).length, 4096);
  assert.ok(filled(5000, 100).after(0).length <= 4096);
  assert.ok(filled(5000, 100, 256).after(0).length <= 256);
  assert.ok(filled(5000, 100, 100_000).after(0).length >= 64);
});

test('large objects stay in 128 batches at most, because the history deflates them', () => {
  const recent = filled(5000, 64 * 1024);
  assert.ok(recent.after(0).length <= 128);
  assert.equal(recent.newest, 5000);
  assert.equal(recent.after(recent.from)[0]?.revision, recent.from + 1, 'all batches after `from` are kept');
});

test('compacted batches are dropped, and the others count from the compacted revision', () => {
  const recent = filled(10, 100);
  recent.compacted(4);
  assert.equal(recent.from, 4);
  assert.deepEqual(
    recent.after(7).map(({ revision }) => revision),
    [8, 9, 10],
  );
  recent.compacted(20);
  assert.deepEqual([recent.from, recent.newest, recent.after(0).length], [20, 0, 0]);
});
