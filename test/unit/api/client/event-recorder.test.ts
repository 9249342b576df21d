/** Tests core events: counts of repeated events, combined events, and the limit for each object. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { CoreEventRecorder } from '../../../../api/client/event-recorder.ts';
import { events } from '../../../../api/client/resources.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('a repeated event is a count on the first; many similar ones are combined', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const recorder = new CoreEventRecorder({ client, clock, logger: silentLogger, component: 'test' });
  const about = { kind: 'Pod', namespace: 'shop', name: 'p', uid: 'u' };
  for (let at = 0; at < 3; at++) recorder.event(about, 'Warning', 'BackOff', 'again');
  await recorder.flush();
  assert.deepEqual(
    client.peekAll(events).map(({ count }) => count),
    [3],
  );
  for (let at = 0; at < 15; at++) recorder.event(about, 'Warning', 'Failed', `reason ${at}`);
  await recorder.flush();
  const failed = client.peekAll(events).filter(({ reason }) => reason === 'Failed');
  assert.equal(failed.length, 10);
  assert.equal(failed.at(-1)?.message, '(combined from similar events): reason 14');
});

test('an object that causes too many is throttled', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const recorder = new CoreEventRecorder({ client, clock, logger: silentLogger, component: 'test' });
  for (let at = 0; at < 100; at++) recorder.event({ kind: 'Pod', name: 'p' }, 'Normal', `Reason${at}`, 'm');
  await recorder.flush();
  assert.equal(client.peekAll(events).length, 25);
  // Warnings do not hide what else happens to it.
  recorder.event({ kind: 'Pod', name: 'p' }, 'Warning', 'Failed', 'm');
  await recorder.flush();
  assert.equal(client.peekAll(events).length, 26);
});
