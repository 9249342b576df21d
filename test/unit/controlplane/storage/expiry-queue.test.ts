/** Tests keys that expire. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ExpiryQueue, type Expiry } from '../../../../controlplane/storage/expiry-queue.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

describe('the queue of expiries', () => {
  it('gives many that are due together in steps, soon after each other', async () => {
    const clock = new FakeClock();
    const steps: (readonly Expiry[])[] = [];
    const queue = new ExpiryQueue(clock, (due) => steps.push(due));
    for (let revision = 0; revision < 20_000; revision += 1)
      queue.add({ key: `/core/events/a/${revision}`, revision, atMs: clock.now() - 1000 });
    await clock.advance(15_000);
    assert.equal(steps.flat().length, 20_000);
    assert.ok(Math.max(...steps.map((due) => due.length)) <= 1000);
    queue.close();
  });

  it('gathers those of ten seconds', async () => {
    const clock = new FakeClock();
    const steps: (readonly Expiry[])[] = [];
    const queue = new ExpiryQueue(clock, (due) => steps.push(due));
    for (let revision = 0; revision < 9; revision += 1)
      queue.add({ key: `/core/events/a/${revision}`, revision, atMs: clock.now() + 1000 * revision });
    await clock.advance(30_000);
    assert.deepEqual(
      steps.map((due) => due.length),
      [9],
    );
    queue.close();
  });
});
