/**
 * Tests which events become series: those with the same object, action and reason, until the object changes or six minutes
 * pass. Tests also how a note that is too long for the API is cut.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { EventSeriesRecorder } from '../../../../api/client/event-series-recorder.ts';
import { eventsV1 } from '../../../../api/client/resources.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

test('an event that is reported again becomes a series, and one of a changed object a new event', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const recorder = new EventSeriesRecorder({ client, clock, logger: silentLogger, component: 'default-scheduler' });
  const report = async (resourceVersion: string, message: string, action = 'Scheduling'): Promise<void> => {
    const pod = { apiVersion: 'v1', kind: 'Pod', namespace: 'default', name: 'p', uid: 'u', resourceVersion };
    recorder.event(pod, 'Warning', 'FailedScheduling', message, { action });
    await recorder.flush();
  };
  const seen = (): unknown[] =>
    client.peekAll(eventsV1).map((event) => {
      const { note, series } = event as { note?: string; series?: { count: number } };
      return [note, series?.count];
    });
  await report('1', 'first');
  await report('1', 'the message of a series is its first');
  await report('1', 'first');
  assert.deepEqual(seen(), [['first', 3]]);
  await report('2', 'second');
  await report('2', 'other action', 'Binding');
  assert.deepEqual(seen().slice(1), [
    ['second', undefined],
    ['other action', undefined],
  ]);
  await clock.advance(361_000);
  await report('2', 'later');
  assert.deepEqual(seen().slice(3), [['later', undefined]]);
});

test('a note that is too long for the API is cut as in kube-scheduler, between two characters', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const recorder = new EventSeriesRecorder({ client, clock, logger: silentLogger, component: 'default-scheduler' });
  const notes = async (message: string): Promise<unknown[]> => {
    const pod = { apiVersion: 'v1', kind: 'Pod', namespace: 'default', name: 'p', uid: message };
    recorder.event(pod, 'Warning', 'FailedScheduling', message);
    await recorder.flush();
    return client.peekAll(eventsV1).map(({ note }) => note);
  };
  assert.deepEqual((await notes('a'.repeat(1024))).at(-1), 'a'.repeat(1024));
  assert.deepEqual((await notes('b'.repeat(1025))).at(-1), `${'b'.repeat(1020)} ...`);
  assert.deepEqual((await notes(`${'c'.repeat(1019)}äöü`)).at(-1), `${'c'.repeat(1019)} ...`);
});
