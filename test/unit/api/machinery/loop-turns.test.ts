/** Tests how concurrent work in one process shares the event loop. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as turnOfTheLoop } from 'node:timers/promises';
import { LoopTurns } from '../../../../api/machinery/loop-turns.ts';
import { TimeSlice } from '../../../../api/machinery/time-slice.ts';
import { runWorkers, WorkQueue } from '../../../../api/machinery/work-queue.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

/** A clock that advances only with work. */
class WorkClock {
  nowMs = 0;
  monotonic(): number {
    return this.nowMs;
  }
}

/** Counts turns of the event loop and the work in the longest one until `done` resolves. */
async function longestTurn(clock: WorkClock, done: Promise<unknown>): Promise<number> {
  let [longest, before, isDone] = [0, clock.nowMs, false];
  const watch = done.then(() => (isDone = true));
  while (!isDone) {
    await turnOfTheLoop();
    longest = Math.max(longest, clock.nowMs - before);
    before = clock.nowMs;
  }
  await watch;
  return longest;
}

describe('turns of the event loop', () => {
  it('are shared by a thousand units that begin at once, in their order', async () => {
    const clock = new WorkClock();
    const turns = new LoopTurns(clock);
    const order: number[] = [];
    const unit = async (at: number): Promise<void> => {
      await turns.begin();
      // The work begins after a promise, like that of a request. When it is admitted, no time has passed yet.
      await Promise.resolve();
      clock.nowMs += 1;
      order.push(at);
    };
    const longest = await longestTurn(clock, Promise.all(Array.from({ length: 1000 }, (_, at) => unit(at))));
    assert.ok(longest <= 25, `${longest} ms`);
    assert.equal(order.length, 1000);
    assert.deepEqual(
      order,
      [...order].sort((a, b) => a - b),
    );
  });

  it('end for a chain of units when their time share is used up', async () => {
    const clock = new WorkClock();
    const turns = new LoopTurns(clock);
    const chain = async (): Promise<void> => {
      for (let at = 0; at < 500; at += 1) {
        await turns.begin();
        clock.nowMs += 4;
      }
    };
    const longest = await longestTurn(clock, chain());
    assert.ok(longest <= 25, `${longest} ms`);
  });

  it('bound reconciles that wait for nothing', async () => {
    const clock = new WorkClock();
    const queue = new WorkQueue({ clock: new FakeClock() });
    const stop = new AbortController();
    for (let at = 0; at < 300; at += 1) queue.add(`key-${at}`);
    let left = 300;
    const workers = runWorkers({
      queue,
      workers: 5,
      signal: stop.signal,
      turns: new LoopTurns(clock),
      reconcile: () => {
        clock.nowMs += 1;
        left -= 1;
        if (left === 0) stop.abort();
        return Promise.resolve();
      },
      onError: () => undefined,
    });
    const longest = await longestTurn(clock, workers);
    assert.ok(longest <= 25, `${longest} ms`);
  });
});

describe('a slice of time', () => {
  it('is spent after its length, and is full again after a pause', async () => {
    const clock = new WorkClock();
    const slice = new TimeSlice(clock, 10);
    clock.nowMs = 9;
    assert.equal(slice.isSpent, false);
    clock.nowMs = 10;
    assert.equal(slice.isSpent, true);
    await slice.pause();
    assert.equal(slice.isSpent, false);
  });
});
