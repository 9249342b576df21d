/** Records that wait for their removal from the backend. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RemovalBacklog } from '../../../../controlplane/storage/removal-backlog.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('what is added at any moment is removed when its addition resolves', async () => {
  for (let ticks = 0; ticks < 12; ticks += 1) {
    const removed: number[] = [];
    const backlog = new RemovalBacklog({
      clock: new FakeClock(),
      remove: (_compactedRevision, revisions) => {
        removed.push(...revisions);
        return Promise.resolve();
      },
      onFailure: () => false,
    });
    const add = (revision: number): Promise<void> => {
      backlog.push(revision, [revision]);
      return backlog.drain();
    };
    const first = add(1);
    for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve();
    await add(2);
    assert.deepEqual(removed, [1, 2], `added after ${ticks} ticks`);
    await first;
  }
});
