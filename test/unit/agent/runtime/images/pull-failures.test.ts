import assert from 'node:assert/strict';
import { it } from 'node:test';
import { PullFailures } from '../../../../../agent/runtime/images/pull-failures.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

it('failed pulls are forgotten ten minutes after the last failure, whether or not the pod is still there', async () => {
  const clock = new FakeClock();
  const failures = new PullFailures(clock);
  for (let at = 0; at < 1000; at += 1) failures.failed(`pod${at}_image`, 'ErrImagePull: manifest unknown');
  assert.equal(failures.inBackOff('pod0_image'), 'ErrImagePull: manifest unknown');
  await clock.advance(10_000);
  assert.equal(failures.inBackOff('pod0_image'), undefined);
  failures.failed('pod0_image', 'ErrImagePull: unauthorized');
  await clock.advance(591_000);
  failures.collect();
  assert.equal(failures.size, 1);
  await clock.advance(10_000);
  failures.collect();
  assert.equal(failures.size, 0);
});
