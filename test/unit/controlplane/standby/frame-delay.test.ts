import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FrameDelay } from '../../../../controlplane/standby/frame-delay.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('a frame that waited in a buffer was sent as much earlier as it waited longer than the fastest one', async () => {
  const clock = new FakeClock();
  const delay = new FrameDelay(clock);
  const startMs = clock.monotonic();
  // Receives a frame. The clock of the sender began 5 s later, and a frame is on the way for 20 ms or longer.
  const receive = (sentAfterMs: number): number => delay.sentAtMs(startMs + sentAfterMs - 5000);
  await clock.advance(50);
  assert.equal(receive(0), clock.now());
  await clock.advance(970);
  assert.equal(receive(1000), clock.now());
  await clock.advance(7000);
  assert.equal(receive(2000), clock.now() - 6000);
  assert.equal(receive(8000), clock.now());
});
