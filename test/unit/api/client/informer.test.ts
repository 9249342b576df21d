import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { Informers } from '../../../../api/client/informer.ts';
import { configMaps, pods } from '../../../../api/client/resources.ts';
import { newInvalid } from '../../../../api/meta/status-error.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const pod = (name: string, labels: Record<string, string> = {}) => ({ metadata: { name, namespace: 'shop', labels } });

function setUp({
  prepare,
  ...options
}: { readonly watchList?: boolean; readonly prepare?: (client: FakeClient) => void } = {}) {
  const clock = new FakeClock();
  const client = new FakeClient(clock, [
    [pods, pod('a')],
    [pods, pod('b')],
  ]);
  prepare?.(client);
  const informers = new Informers({ client, clock, logger: silentLogger, ...options });
  const informer = informers.for(pods);
  const heard: string[] = [];
  informer.addHandler({
    add: (object) => heard.push(`add ${object.metadata.name}`),
    update: (before, object) =>
      heard.push(
        `update ${object.metadata.name} ${before.metadata.resourceVersion === object.metadata.resourceVersion}`,
      ),
    delete: (object) => heard.push(`delete ${object.metadata.name}`),
  });
  return { clock, client, informers, informer, heard };
}

for (const watchList of [true, false]) {
  const by = watchList ? 'a watch with initial events' : 'list and watch';
  test(`${by}: every change is heard once and in order`, async () => {
    const { clock, client, informers, informer, heard } = setUp({ watchList });
    await clock.advance(10);
    assert.equal(informer.hasSynced, true);
    await client.create(pods, 'shop', pod('c'));
    await client.patch(pods, 'shop', 'c', { type: 'merge', body: { metadata: { labels: { x: 'y' } } } });
    await client.delete(pods, 'shop', 'a');
    await clock.advance(10);
    assert.deepEqual(heard, ['add a', 'add b', 'add c', 'update c false', 'delete a']);
    assert.deepEqual(
      informer.list('shop').map(({ metadata }) => metadata.name),
      ['b', 'c'],
    );
    await informers.close();
  });

  test(`${by}: a watch that ends is resumed where it was, and nothing is heard twice`, async () => {
    const { clock, client, informers, heard } = setUp({ watchList });
    await clock.advance(10);
    client.endWatches();
    await clock.settle();
    await client.create(pods, 'shop', pod('c'));
    await clock.advance(60_000);
    assert.deepEqual(heard, ['add a', 'add b', 'add c']);
    const takes = client.calls.filter(({ verb }) => verb === 'list').length;
    assert.equal(takes, watchList ? 0 : 1);
    await informers.close();
  });

  test(`${by}: after compaction the difference is delivered, a replaced object as delete and add`, async () => {
    const { clock, client, informers, heard } = setUp({ watchList });
    await clock.advance(10);
    let down = true;
    client.intercept(({ verb }) => {
      if (down && (verb === 'watch' || verb === 'list')) throw new Error('connection refused');
      return undefined;
    });
    client.endWatches();
    await clock.advance(10);
    await client.delete(pods, 'shop', 'a');
    await client.delete(pods, 'shop', 'b');
    await client.create(pods, 'shop', pod('b'));
    await client.create(pods, 'shop', pod('d'));
    client.compact();
    down = false;
    await clock.advance(120_000);
    assert.deepEqual(heard.slice(2).toSorted(), ['add b', 'add d', 'delete a', 'delete b']);
    await informers.close();
  });
}

test('a server that does not know initial events is listed', async () => {
  let refused = 0;
  const prepare = (client: FakeClient): void =>
    client.intercept(({ verb }) => {
      if (verb !== 'watch' || refused > 0) return undefined;
      refused++;
      throw newInvalid({ group: '', resource: 'ListOptions' }, '', []);
    });
  const { clock, client, informers, informer } = setUp({ prepare });
  await clock.advance(10);
  assert.equal(informer.hasSynced, true);
  assert.equal(client.calls.filter(({ verb }) => verb === 'list').length, 1);
  await informers.close();
});

test('a refused list is tried again with growing pauses, not in a tight loop', async () => {
  const prepare = (client: FakeClient): void =>
    client.intercept(({ verb }) => {
      if (verb === 'list') throw new Error('connection refused');
      return undefined;
    });
  const { clock, client, informers } = setUp({ watchList: false, prepare });
  await clock.advance(60_000);
  const tries = client.calls.filter(({ verb }) => verb === 'list').length;
  assert.ok(tries >= 3 && tries <= 12, `${tries} tries`);
  await informers.close();
});

test('a server that ends the first watch before it has sent the contents is called with growing pauses', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  let watches = 0;
  client.watch = async function* () {
    watches += 1;
    if (watches > 100) await new Promise(() => undefined);
    yield* [];
  };
  const informers = new Informers({ client, clock, logger: silentLogger });
  assert.equal(informers.for(pods).hasSynced, false);
  await clock.advance(60_000);
  assert.ok(watches >= 3 && watches <= 12, `${watches} watches`);
  await informers.close();
});

test('all users of a resource share one informer, and late handlers get the existing objects', async () => {
  const { clock, informers, informer } = setUp();
  await clock.advance(10);
  assert.equal(informers.for(pods), informer);
  const late: string[] = [];
  informers.for(pods).addHandler({ add: (object) => late.push(object.metadata.name ?? '') });
  assert.deepEqual(late, ['a', 'b']);
  assert.notEqual(informers.for(configMaps) as unknown, informer);
  await informers.close();
});

test('indexes follow the objects', async () => {
  const { clock, client, informers, informer } = setUp();
  informer.addIndex('app', ({ metadata }) => (metadata.labels?.['app'] === undefined ? [] : [metadata.labels['app']]));
  await clock.advance(10);
  await client.create(pods, 'shop', pod('c', { app: 'x' }));
  await clock.advance(10);
  assert.equal(informer.byIndex('app', 'x').length, 1);
  await client.patch(pods, 'shop', 'c', { type: 'merge', body: { metadata: { labels: { app: 'y' } } } });
  await clock.advance(10);
  assert.equal(informer.byIndex('app', 'x').length, 0);
  assert.equal(informer.byIndex('app', 'y').length, 1);
  assert.throws(() => informer.byIndex('other', 'x'), /no index other/);
  await informers.close();
});

for (const watchList of [true, false])
  test(`objects without an identity are left out of a ${watchList ? 'watch' : 'list'}, and the others are heard`, async () => {
    const broken = [null, 'text', {}, { metadata: null }, { metadata: 'text' }, { metadata: { name: {} } }] as never[];
    const { clock, client, informers, heard } = setUp({
      watchList,
      prepare: (fake) => {
        const watch = fake.watch.bind(fake);
        const list = fake.list.bind(fake);
        fake.watch = async function* (...request) {
          for (const object of broken) yield { type: 'ADDED', object };
          for await (const event of watch(...request)) {
            yield event;
            for (const object of broken) yield { type: 'MODIFIED', object };
          }
        };
        fake.list = async (...request) => {
          const found = await list(...request);
          return { ...found, items: [...broken, ...found.items] };
        };
      },
    });
    await clock.advance(10);
    await client.create(pods, 'shop', pod('c'));
    await clock.advance(10);
    assert.deepEqual(heard, ['add a', 'add b', 'add c']);
    await informers.close();
  });
