/** Informers and direct clients of thousands of objects leave turns of the event loop to others. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { Informers } from '../../../../api/client/informer.ts';
import { configMaps, secrets } from '../../../../api/client/resources.ts';
import type { ResourceCatalog, WatchEvent, WatchSink } from '../../../../controlplane/model/rest.ts';
import { listersFromCatalog } from '../../../../controlplane/model/listers.ts';
import { createDirectClient } from '../../../../controlplane/server/direct-client.ts';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { allowAll } from '../../../fakes/fake-server.ts';
import { TickingClock, turnsOf } from '../../../fakes/ticking-clock.ts';

const OBJECTS = 400;
const named = (at: number) => ({ metadata: { name: `o${at}`, namespace: 'n' } });
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

for (const watchList of [true, false]) {
  it(`an informer takes its contents in slices, then the changes since, with ${watchList ? 'a watch' : 'a list'}`, async () => {
    const clock = new TickingClock();
    const client = new FakeClient(
      clock,
      Array.from({ length: OBJECTS }, (_, at) => [configMaps, named(at)]),
    );
    const informers = new Informers({ client, clock, logger: silentLogger, watchList });
    const informer = informers.for(configMaps);
    const seen: string[] = [];
    informer.addHandler({
      add: ({ metadata }) => seen.push(`add ${metadata.name}`),
      delete: ({ metadata }) => seen.push(`delete ${metadata.name}`),
    });
    const { turns } = await turnsOf(async () => {
      while (seen.length === 0) await turn();
      await client.delete(configMaps, 'n', 'o7');
      await client.create(configMaps, 'n', named(OBJECTS));
      assert.ok(!informer.hasSynced);
      await informer.synced();
    });
    assert.ok(turns > OBJECTS / 20, `${turns} turns of the event loop`);
    while (seen.length < OBJECTS + 2) await turn();
    assert.equal(new Set(seen).size, OBJECTS + 2);
    assert.equal(informer.size, OBJECTS);
    assert.equal(informer.get('n', 'o7'), undefined);
    await informers.close();
  });
}

it('a closed informer stops reading its list', async () => {
  const clock = new TickingClock();
  const client = new FakeClient(
    clock,
    Array.from({ length: OBJECTS }, (_, at) => [configMaps, named(at)]),
  );
  const informers = new Informers({ client, clock, logger: silentLogger, watchList: false });
  let added = 0;
  const informer = informers.for(configMaps);
  informer.addHandler({ add: () => (added += 1) });
  while (added === 0) await turn();
  await informers.close();
  const before = added;
  for (let at = 0; at < 20; at += 1) await turn();
  assert.equal(added, before);
  assert.ok(!informer.hasSynced);
});

function directClient() {
  const resource = new FakeResource(fakeInfo('secrets', 'Secret'));
  const catalog = new FakeCatalog([resource]);
  const user = { name: 'system:controller', groups: [] };
  const clock = new TickingClock();
  return { resource, client: createDirectClient({ catalog, authorizer: allowAll, clock, user, fieldManager: 'test' }) };
}

it('a direct client decodes the objects of a list in slices', async () => {
  const { resource, client } = directClient();
  for (let at = 0; at < OBJECTS; at += 1) resource.put('n', named(at));
  const { result, turns } = await turnsOf(() => client.list(secrets, {}));
  assert.equal(result.items.length, OBJECTS);
  assert.ok(turns > OBJECTS / 20, `${turns} turns of the event loop`);
});

it('a direct client gives the waiting events of a watch to its reader in slices', async () => {
  const { resource, client } = directClient();
  const stop = new AbortController();
  const names: (string | undefined)[] = [];
  const { turns } = await turnsOf(async () => {
    void (async () => {
      while (resource.watchers === 0) await turn();
      for (let at = 0; at < OBJECTS; at += 1) resource.put('n', named(at));
    })();
    for await (const { object } of client.watch(secrets, { namespace: 'n', signal: stop.signal })) {
      names.push(object.metadata.name);
      if (names.length === OBJECTS) stop.abort();
    }
  });
  assert.deepEqual(
    names,
    Array.from({ length: OBJECTS }, (_, at) => `o${at}`),
  );
  assert.ok(turns > OBJECTS / 20, `${turns} turns of the event loop`);
});

it('a lister reads one batch of the existing objects in a turn, and changes at once', async () => {
  const batches = 20;
  let sink: WatchSink | undefined;
  let sent = 0;
  const entryOf = (name: string) => ({
    object: { kind: 'Secret', apiVersion: 'v1', metadata: { name, namespace: 'n' } },
  });
  const resume = (): void => {
    for (let isTaken = true; isTaken && sent <= batches;) {
      const end = { type: 'BOOKMARK', resourceVersion: '9', initialEventsEnd: true };
      const event = sent === batches ? end : { type: 'ADDED', entry: entryOf(`s${sent}`) };
      sent += 1;
      isTaken = sink?.onEvents([event as unknown as WatchEvent]) === true;
    }
  };
  const watch = (_context: unknown, _namespace: string, _options: unknown, given: WatchSink) => {
    sink = given;
    setImmediate(resume);
    return Promise.resolve({ resume, close: () => undefined, bookmark: () => undefined });
  };
  const catalog = { find: () => ({ info: { resource: 'secrets' }, watch }) } as unknown as ResourceCatalog;
  const stop = new AbortController();
  const listers = listersFromCatalog(catalog, { clock: new TickingClock(), logger: silentLogger, signal: stop.signal });
  const lister = listers.of(secrets);
  const { turns } = await turnsOf(() => lister.synced());
  assert.ok(turns >= batches, `${turns} turns of the event loop`);
  assert.equal(lister.list().length, batches);
  assert.equal(sink?.onEvents([{ type: 'ADDED', entry: entryOf('later') } as unknown as WatchEvent]), true);
  assert.ok(lister.get('n', 'later') !== undefined);
  stop.abort();
});
