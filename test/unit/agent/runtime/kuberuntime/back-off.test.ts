import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { BackOff } from '../../../../../agent/runtime/kuberuntime/back-off.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

describe('back-off', () => {
  it('lets the first restart through and waits 10 s, doubling, up to 5 min', async () => {
    const clock = new FakeClock();
    const backOff = new BackOff(clock);
    assert.equal(backOff.remainingMs('k', clock.now()), 0);
    const waits: number[] = [];
    for (let round = 0; round < 7; round++) {
      backOff.next('k', clock.now());
      waits.push(backOff.remainingMs('k', clock.now()) / 1000);
      await clock.advance(backOff.delayMs('k'));
    }
    assert.deepEqual(waits, [10, 20, 40, 80, 160, 300, 300]);
  });
  it('is forgotten by a container that ran for 10 minutes', async () => {
    const clock = new FakeClock();
    const backOff = new BackOff(clock);
    backOff.next('k', clock.now());
    await clock.advance(10 * 60_000 + 1);
    assert.equal(backOff.remainingMs('k', clock.now()), 0);
    backOff.next('k', clock.now());
    assert.equal(backOff.delayMs('k'), 10_000);
  });

  it('waits no longer than the delay when the clock is set back', () => {
    const clock = new FakeClock();
    const backOff = new BackOff(clock);
    const ended = clock.now() + 300_000;
    backOff.next('k', ended);
    assert.equal(backOff.remainingMs('k', ended), 10_000);
  });

  it('is not forgotten sooner because the longest delay is short', async () => {
    const clock = new FakeClock();
    const backOff = new BackOff(clock, 1_000, 2_000);
    backOff.next('k', clock.now());
    await clock.advance(10_000);
    backOff.next('k', clock.now());
    assert.equal(backOff.delayMs('k'), 2_000);
  });
});
