/** Tests that a process does not wait for ever for a control plane whose storage does not answer. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { closePlane } from '../../../../cli/cluster/close-plane.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('the process waits until the control plane is closed', async () => {
  const warnings: string[] = [];
  const logger = { ...silentLogger, warn: (_fields: object, message: string) => void warnings.push(message) };
  const closing = Promise.withResolvers<void>();
  let isDone = false;
  const clock = new FakeClock();
  const done = closePlane({ close: () => closing.promise }, { logger, clock }).then(() => (isDone = true));
  await clock.advance(20_000);
  assert.equal(isDone, false);
  closing.resolve();
  await done;
  assert.deepEqual(warnings, []);
});

test('the process stops waiting before systemd kills it, and logs a warning', async () => {
  const warnings: string[] = [];
  const logger = { ...silentLogger, warn: (_fields: object, message: string) => void warnings.push(message) };
  const clock = new FakeClock();
  const done = closePlane({ close: () => new Promise(() => undefined) }, { logger, clock });
  await clock.advance(26_000);
  await done;
  assert.match(warnings.join(), /could not be closed in time/);
});
