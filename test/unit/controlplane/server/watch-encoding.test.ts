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

test('a batch is encoded once for all watches of a turn, and not kept after it, however many selections there are', async () => {
  const batch = events(maps.put('n', { metadata: { name: 'a' } }), maps.put('n', { metadata: { name: 'b' } }));
  const [first] = encoder().encode(batch);
  const [second] = encoder().encode(batch);
  assert.equal(second, first);
  await Promise.resolve();
  const [later] = encoder().encode(batch);
  assert.notEqual(later, first);
  assert.deepEqual(later, first);
});

test('the bytes of a large object are those of the cache, and small ones are joined', () => {
  const large = maps.put('n', { metadata: { name: 'large' }, data: { text: 'x'.repeat(100_000) } });
  const small = maps.put('n', { metadata: { name: 'small' } });
  const chunks = encoder().encode(events(small, large, small, small));
  assert.equal(chunks.length, 3);
  assert.equal(chunks[1], large.bytes);
  const lines = Buffer.concat(chunks).toString().trimEnd().split('\n');
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as { object: { metadata: { name: string } } }).object.metadata.name),
    ['small', 'large', 'small', 'small'],
  );
});
