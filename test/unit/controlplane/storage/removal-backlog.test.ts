/** Tests records that wait for their removal from the backend. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RemovalBacklog } from '../../../../controlplane/storage/removal-backlog.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('a record that is added at any moment is removed when its addition resolves', async () => {
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

for (const [name, release] of [
  ['its last hold is released', (_backlog, holds) => holds.forEach((one) => one())],
  ['a full disk ends all holds', (backlog) => backlog.releaseHolds()],
] as const satisfies readonly (readonly [string, (backlog: RemovalBacklog, holds: readonly (() => void)[]) => void])[])
  test(`what was held is removed as soon as ${name}, without another compaction`, async () => {
    const removed: number[] = [];
    const clock = new FakeClock();
    const backlog = new RemovalBacklog({
      clock,
      remove: (_compactedRevision, revisions) => {
        removed.push(...revisions);
        return Promise.resolve();
      },
      onFailure: () => false,
    });
    const holds = [backlog.hold(), backlog.hold()];
    backlog.push(1, [1]);
    await backlog.drain();
    holds[0]?.();
    await clock.settle();
    assert.deepEqual(removed, []);
    release(backlog, holds);
    await clock.settle();
    assert.deepEqual(removed, [1]);
  });
