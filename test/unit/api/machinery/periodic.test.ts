import assert from 'node:assert/strict';
import { test } from 'node:test';
import { periodically } from '../../../../api/machinery/periodic.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

for (const [first, turnsAt] of [
  ['now', [0, 1000, 2000]],
  ['later', [1000, 2000]],
] as const)
  test(`with first: '${first}', there is one turn in each period, and the turns go on after a failed one`, async () => {
    const clock = new FakeClock();
    const stop = new AbortController();
    const turns: number[] = [];
    const failures: number[] = [];
    const running = periodically(
      () => {
        turns.push(clock.monotonic());
        // One turn throws, and the next one rejects.
        if (turns.length === 1) throw new Error('boom');
        return turns.length === 2 ? Promise.reject(new Error('boom')) : undefined;
      },
      {
        clock,
        periodMs: 1000,
        signal: stop.signal,
        onError: (_error, count) => failures.push(count),
        first,
      },
    );
    await clock.advance(2500);
    assert.deepEqual(turns, turnsAt);
    assert.deepEqual(failures, [1, 2]);
    stop.abort();
    await running;
    assert.equal(clock.pendingTimers, 0);
  });
