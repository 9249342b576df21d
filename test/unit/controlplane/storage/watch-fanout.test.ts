/** What the delivery to watches does with changes that only a storage of several servers makes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { WatchEvent } from '../../../../controlplane/model/rest.ts';
import { CacheEvent } from '../../../../controlplane/storage/cache-event.ts';
import { CachedObject, LabelSets } from '../../../../controlplane/storage/cached-object.ts';
import { encodeObject, stampRevision } from '../../../../controlplane/storage/object-bytes.ts';
import { selectionOf } from '../../../../controlplane/storage/selection.ts';
import { WatchFanout } from '../../../../controlplane/storage/watch-fanout.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const PREFIX = '/core/pods/';
const context = {
  resource: { group: '', resource: 'pods', namespaced: true },
  prefixLength: PREFIX.length,
  labelSets: new LabelSets(),
  freeze: false,
  isClosed: false,
};

function creation(name: string, revision: number): CacheEvent {
  const key = `${PREFIX}a/${name}`;
  const value = encodeObject({ kind: 'Pod', apiVersion: 'v1', metadata: { name, namespace: 'a' } });
  const stored = { key, value: stampRevision(value, revision), createRevision: revision, revision };
  return new CacheEvent(revision, key, new CachedObject(context, stored), undefined);
}

test('a watch that pauses within many changes of one revision gets all of them', async () => {
  // etcd deletes all keys of a lease at one revision, for example.
  const changes = Array.from({ length: 600 }, (_, at) => creation(`p${at}`, at < 300 ? 2 : 3));
  changes.push(creation('last', 4));
  const fanout = new WatchFanout({
    clock: new FakeClock(),
    history: { newest: () => 4, after: (revision) => changes.filter((change) => change.revision > revision) },
    indexedFields: [],
    revision: () => 4,
    compactedRevision: () => 1,
    keyOf: (namespace, name) => `${PREFIX}${namespace}/${name}`,
    namespaced: true,
    watchFailed: (error) => assert.fail(String(error)),
  });
  const shown: WatchEvent[] = [];
  const options = { selection: selectionOf(''), afterRevision: 1, bookmarks: false, initialEventsEnd: false };
  const handle = fanout.add(options, undefined, {
    onEvents(events) {
      shown.push(...events);
      return false;
    },
    onEnd: () => assert.fail('the watch ended'),
  });
  for (let turn = 0; turn < 5; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve));
    handle.resume();
  }
  const names = shown.map((event) => (event.type === 'ADDED' ? event.entry.object.metadata.name : event.type));
  assert.deepEqual(
    names,
    changes.map(({ current }) => current?.name),
  );
});
