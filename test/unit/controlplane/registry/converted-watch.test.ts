/** Tests watches whose events a webhook converts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { convertWatch, type ConvertEvents } from '../../../../controlplane/registry/converted-watch.ts';
import type { WatchEvent } from '../../../../controlplane/model/rest.ts';

const bookmark = (revision: number): WatchEvent => ({
  type: 'BOOKMARK',
  resourceVersion: String(revision),
  initialEventsEnd: false,
});
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function open(convert: ConvertEvents, clientTakes: () => boolean = () => true) {
  const shown: string[] = [];
  const failures: unknown[] = [];
  let resumed = 0;
  let closed = false;
  const watch = convertWatch(
    {
      onEvents(events) {
        for (const event of events)
          shown.push(event.type === 'BOOKMARK' ? event.resourceVersion : `${event.type} ${errorOf(event)}`);
        return clientTakes();
      },
      onEnd: () => shown.push('end'),
    },
    convert,
    (error) => failures.push(error),
  );
  const handle = watch.attach({ resume: () => (resumed += 1), close: () => (closed = true) });
  return { shown, failures, sink: watch.sink, handle, resumed: () => resumed, closed: () => closed };
}

const errorOf = (event: WatchEvent): string => (event.type === 'ERROR' ? event.error.message : '');

test('while a batch is converted the watch is paused, so nothing is buffered', async () => {
  const pending = Promise.withResolvers<readonly WatchEvent[]>();
  const { sink, handle, shown, resumed } = open(() => pending.promise);
  assert.equal(sink.onEvents([bookmark(1)]), false);
  handle.resume();
  assert.equal(resumed(), 0, 'a client that drains does not resume a watch that converts');
  pending.resolve([bookmark(1)]);
  await settle();
  assert.deepEqual(shown, ['1']);
  assert.equal(resumed(), 1);
});

test('a client can pause a watch after a converted batch', async () => {
  let takes = false;
  const { sink, handle, resumed } = open(
    (events) => Promise.resolve(events),
    () => takes,
  );
  sink.onEvents([bookmark(1)]);
  await settle();
  assert.equal(resumed(), 0);
  takes = true;
  handle.resume();
  assert.equal(resumed(), 1);
});

test('batches that are converted already pass at once with the answer of the client', () => {
  let takes = true;
  const { sink, shown } = open(
    (events) => events,
    () => takes,
  );
  assert.equal(sink.onEvents([bookmark(1)]), true);
  takes = false;
  assert.equal(sink.onEvents([bookmark(2)]), false);
  assert.deepEqual(shown, ['1', '2']);
});

test('a failed conversion ends the watch with an ERROR event, and no later batch is shown', async () => {
  const { sink, shown, closed, resumed } = open(() => Promise.reject(new Error('the webhook failed')));
  sink.onEvents([bookmark(1)]);
  await settle();
  sink.onEvents([bookmark(2)]);
  await settle();
  assert.deepEqual(shown, ['ERROR the webhook failed', 'end']);
  assert.deepEqual([closed(), resumed()], [true, 0]);
});

test('the end of a watch comes after the batch that is being converted', async () => {
  const pending = Promise.withResolvers<readonly WatchEvent[]>();
  const { sink, shown } = open(() => pending.promise);
  sink.onEvents([bookmark(1)]);
  sink.onEvents([{ type: 'ERROR', error: new Error('too old') }]);
  sink.onEnd();
  pending.resolve([bookmark(1)]);
  await settle();
  assert.deepEqual(shown, ['1', 'ERROR too old', 'end']);
});

test('a client that closed its watch is shown nothing more', async () => {
  const pending = Promise.withResolvers<readonly WatchEvent[]>();
  const { sink, handle, shown } = open(() => pending.promise);
  sink.onEvents([bookmark(1)]);
  handle.close();
  pending.resolve([bookmark(1)]);
  await settle();
  assert.deepEqual(shown, []);
});

test('a client that throws whatever it is shown ends its watch, and is reported', async () => {
  const { sink, shown, failures, closed } = open(
    (events) => Promise.resolve(events),
    () => {
      throw new Error('a client that is broken');
    },
  );
  sink.onEvents([bookmark(1)]);
  await settle();
  assert.deepEqual(shown, ['1', 'ERROR a client that is broken', 'end']);
  assert.equal(closed(), true);
  assert.equal(failures.length, 1);
});
