import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RevisionWaits } from '../../../../../controlplane/storage/etcd/revision-waits.ts';
import { SharedRead } from '../../../../../controlplane/storage/etcd/shared-read.ts';
import { isStorageError } from '../../../../../controlplane/storage/storage.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

/** Reads whose ends the test decides. */
function controlledReads() {
  const reads: PromiseWithResolvers<number>[] = [];
  const shared = new SharedRead(() => {
    const read = Promise.withResolvers<number>();
    reads.push(read);
    return read.promise;
  });
  return { reads, shared };
}

test('callers during a read share the next one, which begins after they came', async () => {
  const { reads, shared } = controlledReads();
  const first = shared.get();
  const [second, third] = [shared.get(), shared.get()];
  assert.equal(reads.length, 1);
  reads[0]?.resolve(1);
  assert.equal(await first, 1);
  await new Promise(setImmediate);
  assert.equal(reads.length, 2);
  const fourth = shared.get();
  reads[1]?.resolve(2);
  assert.deepEqual(await Promise.all([second, third]), [2, 2]);
  await new Promise(setImmediate);
  reads[2]?.resolve(3);
  assert.equal(await fourth, 3);
  assert.equal(reads.length, 3);
});

test('a read that fails is the failure of its callers only', async () => {
  const { reads, shared } = controlledReads();
  const first = shared.get();
  const second = shared.get();
  reads[0]?.reject(new Error('no answer'));
  await assert.rejects(first, /no answer/);
  await new Promise(setImmediate);
  reads[1]?.resolve(2);
  assert.equal(await second, 2);
});

test('waiting for a revision resolves when it was applied, or fails after some time', async () => {
  const clock = new FakeClock();
  const waits = new RevisionWaits(clock);
  await waits.reached(5, () => 5);
  const [six, eight] = [waits.reached(6, () => 5), waits.reached(8, () => 5)];
  waits.applied(7);
  await six;
  const late = assert.rejects(eight, (error) => isStorageError(error, 'unavailable'));
  await clock.advance(15_000);
  await late;
});
