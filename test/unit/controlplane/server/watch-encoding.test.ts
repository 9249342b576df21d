/** Tests how long the encoded events of watches are kept, and what of them is copied. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Entry, WatchEvent } from '../../../../controlplane/model/rest.ts';
import { createWatchEncoder, type WatchEncoder } from '../../../../controlplane/server/watch-encoding.ts';
import { FakeResource, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { fakeEncodings } from '../../../fakes/fake-server.ts';

const maps = new FakeResource(fakeInfo('configmaps', 'ConfigMap'));

const encoder = (): WatchEncoder =>
  createWatchEncoder({
    rest: maps,
    media: { format: 'json', as: '', version: 'v1', pretty: false },
    include: 'Metadata',
    encodings: fakeEncodings,
    nowMs: () => 0,
    sent: () => undefined,
  });

const events = (...entries: readonly Entry[]): readonly WatchEvent[] =>
  entries.map((entry) => ({ type: 'MODIFIED', entry }));

const large = (name: string): Entry => maps.put('n', { metadata: { name }, data: { text: 'x'.repeat(1_000_000) } });

test('a batch is encoded once for all watches, also for those that get it in later turns', async () => {
  const batch = events(maps.put('n', { metadata: { name: 'a' } }), maps.put('n', { metadata: { name: 'b' } }));
  const [first] = encoder().encode(batch);
  await new Promise((resolve) => setImmediate(resolve));
  const [later] = encoder().encode(batch);
  assert.equal(later, first);
});

test('encoded batches beyond a few megabytes are kept for their turn alone, however many selections there are', async () => {
  const batch = events(maps.put('n', { metadata: { name: 'a' } }));
  const [first] = encoder().encode(batch);
  for (let at = 0; at < 10; at += 1) encoder().encode(events(large('large')));
  const [second] = encoder().encode(batch);
  assert.equal(second, first);
  await Promise.resolve();
  const [later] = encoder().encode(batch);
  assert.notEqual(later, first);
  assert.deepEqual(later, first);
});

test('the bytes of a large object are those of the cache, and small ones are joined', () => {
  const big = large('large');
  const small = maps.put('n', { metadata: { name: 'small' } });
  const chunks = encoder().encode(events(small, big, small, small));
  assert.equal(chunks.length, 3);
  assert.equal(chunks[1], big.bytes);
  const lines = Buffer.concat(chunks).toString().trimEnd().split('\n');
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as { object: { metadata: { name: string } } }).object.metadata.name),
    ['small', 'large', 'small', 'small'],
  );
});
