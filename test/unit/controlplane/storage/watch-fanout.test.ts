/** Tests how changes that occur only in a storage of several servers are delivered to watches. */
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

const LARGE_BYTES = 10_000;

function largeCreation(at: number): CacheEvent {
  const name = `p${String(at).padStart(3, '0')}`;
  const key = `${PREFIX}a/${name}`;
  const annotations = { text: 'x'.repeat(LARGE_BYTES) };
  const value = encodeObject({ kind: 'Pod', apiVersion: 'v1', metadata: { name, namespace: 'a', annotations } });
  const stored = { key, value: stampRevision(value, at + 2), createRevision: at + 2, revision: at + 2 };
  return new CacheEvent(at + 2, key, new CachedObject(context, stored), undefined);
}

for (const [what, source] of [
  ['the existing objects', 'existing'],
  ['a large commit', 'live'],
  ['the history', 'history'],
] as const) {
  test(`a watch that pauses gets ${what} in batches of tens of kilobytes, and all of them in the end`, async () => {
    const changes = Array.from({ length: 100 }, (_, at) => largeCreation(at));
    let revision = source === 'live' ? 1 : 101;
    const fanout = new WatchFanout({
      clock: new FakeClock(),
      history: {
        newest: () => revision,
        after: (after) => changes.filter((change) => change.revision > after && change.revision <= revision),
      },
      indexedFields: [],
      revision: () => revision,
      compactedRevision: () => 1,
      keyOf: (namespace, name) => `${PREFIX}${namespace}/${name}`,
      namespaced: true,
      watchFailed: (error) => assert.fail(String(error)),
    });
    const entries = changes.flatMap(({ current }) => current ?? []);
    const existing = source === 'existing' ? { entries, revision } : undefined;
    const options = {
      selection: selectionOf(''),
      afterRevision: source === 'existing' ? undefined : 1,
      bookmarks: false,
      initialEventsEnd: false,
    };
    const batches: (readonly WatchEvent[])[] = [];
    const handle = fanout.add(options, existing, {
      onEvents(events) {
        batches.push(events);
        return false;
      },
      onEnd: () => assert.fail('the watch ended'),
    });
    const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
    await turn();
    if (source === 'live') {
      revision = 101;
      fanout.deliver(changes);
    }
    for (let turns = 0; turns < 40; turns += 1) {
      await turn();
      handle.resume();
    }
    assert.ok(batches.every(({ length }) => length * LARGE_BYTES < 64 * 1024));
    const names = batches.flat().map((event) => (event.type === 'ADDED' ? event.entry.object.metadata.name : ''));
    assert.deepEqual(
      names,
      entries.map(({ name }) => name),
    );
  });
}

test('watches that are hundreds of commits behind share their batches, so that these are encoded once', async () => {
  let revision = 1;
  const changes = Array.from({ length: 500 }, (_, at) => creation(`p${at}`, at + 2));
  const fanout = new WatchFanout({
    clock: new FakeClock(),
    history: {
      newest: () => revision,
      after: (after) => changes.filter((change) => change.revision > after && change.revision <= revision),
    },
    indexedFields: [],
    revision: () => revision,
    compactedRevision: () => 1,
    keyOf: (namespace, name) => `${PREFIX}${namespace}/${name}`,
    namespaced: true,
    watchFailed: (error) => assert.fail(String(error)),
  });
  const options = { selection: selectionOf(''), afterRevision: 1, bookmarks: false, initialEventsEnd: false };
  const watches = Array.from({ length: 2 }, () => {
    const batches: (readonly WatchEvent[])[] = [];
    const handle = fanout.add(options, undefined, {
      onEvents: (events) => batches.push(events) < 0,
      onEnd: () => assert.fail('the watch ended'),
    });
    return { batches, handle };
  });
  await new Promise((resolve) => setImmediate(resolve));
  for (const change of changes) {
    ({ revision } = change);
    fanout.deliver([change]);
  }
  for (const { handle } of watches) for (let at = 0; at < changes.length; at += 1) handle.resume();
  const [first, second] = watches.map(({ batches }) => batches);
  assert.equal(first?.flat().length, changes.length);
  assert.ok(first.every((batch, at) => batch === second?.[at]));
});

/** Returns a clock of which each read takes a millisecond. */
function countingClock(): FakeClock {
  let readings = 0;
  return Object.assign(new FakeClock(), { monotonic: () => (readings += 1) });
}

/**
 * Commits changes to many watches, the last of which is part of the process. At most `watchesOfTurn` of them get events in one
 * turn.
 */
async function commitToMany(clock: FakeClock, watchesOfTurn: number): Promise<void> {
  const changes = Array.from({ length: 40 }, (_, at) => creation(`p${at}`, at + 2));
  let revision = 1;
  const count = 5 * (watchesOfTurn - 1);
  const fanout = new WatchFanout({
    clock,
    history: {
      newest: () => revision,
      after: (after) => changes.filter((change) => change.revision > after && change.revision <= revision),
    },
    indexedFields: [],
    revision: () => revision,
    compactedRevision: () => 0,
    keyOf: (namespace, name) => `${PREFIX}${namespace}/${name}`,
    namespaced: true,
    watchFailed: (error) => assert.fail(String(error)),
  });
  const watches = Array.from({ length: count }, (_, at) => {
    const names: string[] = [];
    const options = {
      selection: selectionOf(at % 2 === 0 ? '' : 'a'),
      afterRevision: 1,
      bookmarks: false,
      initialEventsEnd: false,
    };
    const isPatient = at !== count - 1;
    const onEvents = (events: readonly WatchEvent[]): boolean => {
      for (const event of events) names.push('entry' in event ? (event.entry.object.metadata.name ?? '') : event.type);
      return true;
    };
    fanout.add(options, undefined, { isPatient, onEvents, onEnd: () => assert.fail('the watch ended') });
    return names;
  });
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  await turn();
  let longest = 0;
  const total = (): number => watches.reduce((sum, { length }) => sum + length, 0);
  for (const change of changes) {
    const before = total();
    revision = change.revision;
    fanout.deliver([change]);
    longest = Math.max(longest, total() - before);
    assert.equal(watches[count - 1]?.at(-1), change.current?.name);
    if (change.revision % 3 === 0) await turn();
  }
  for (let turns = 0; turns < count; turns += 1) await turn();
  assert.ok(longest <= watchesOfTurn, `${longest} watches in one turn`);
  const expected = changes.map(({ current }) => current?.name);
  for (const names of watches) assert.deepEqual(names, expected);
}

test('thousands of watches get the events of a commit in several turns, all of them in order, and parts of the process at once', () =>
  commitToMany(new FakeClock(), 1001));

// Each read of the clock takes a millisecond, as the encoding of a large event does.
test('watches get large events in several turns, all of them in order, and parts of the process at once', () =>
  commitToMany(countingClock(), 11));
