/** Tests the client within the process: verbs, managed fields, authorization, and watches. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { isForbidden, isNotFound } from '../../../../api/meta/status-error.ts';
import { createDirectClient } from '../../../../controlplane/server/direct-client.ts';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { allowAll } from '../../../fakes/fake-server.ts';

const SECRETS = { group: '', version: 'v1', resource: 'secrets', kind: 'Secret', namespaced: true };

function setUp(authorizer = allowAll): { resource: FakeResource; client: ReturnType<typeof createDirectClient> } {
  const resource = new FakeResource(fakeInfo('secrets', 'Secret'));
  const user = { name: 'system:controller', groups: [] };
  const catalog = new FakeCatalog([resource]);
  return {
    resource,
    client: createDirectClient({ catalog, authorizer, clock: systemClock, user, fieldManager: 'test' }),
  };
}

test('objects go in and out as copies', async () => {
  const { client } = setUp();
  const given = { metadata: { name: 'a', labels: { l: '1' } } };
  const created = await client.create(SECRETS, 'n', given);
  given.metadata.labels.l = 'changed';
  created.metadata.labels = { l: 'mine' };
  const got = await client.get(SECRETS, 'n', 'a');
  assert.deepEqual(got.metadata.labels, { l: '1' });
  assert.equal((await client.list(SECRETS, { namespace: 'n' })).items.length, 1);
  await client.delete(SECRETS, 'n', 'a');
  await assert.rejects(client.get(SECRETS, 'n', 'a'), isNotFound);
});

test('a request that the user may not make is refused', async () => {
  const { client } = setUp({ authorize: () => ({ decision: 'no-opinion', reason: '' }) });
  await assert.rejects(client.get(SECRETS, 'n', 'a'), isForbidden);
});

test('a watch delivers in order, more than its queue holds, and ends with its signal', async () => {
  const { client, resource } = setUp();
  const stop = new AbortController();
  const names: string[] = [];
  const watching = (async () => {
    for await (const event of client.watch(SECRETS, { namespace: 'n', signal: stop.signal })) {
      names.push(event.object.metadata.name ?? '');
      if (names.length === 1500) stop.abort();
    }
  })();
  while (resource.watchers === 0) await new Promise((resolve) => setImmediate(resolve));
  for (let index = 0; index < 1500; index += 1) resource.put('n', { metadata: { name: `s${index}` } });
  await watching;
  assert.deepEqual([names.length, names[0], names[1499]], [1500, 's0', 's1499']);
  assert.equal(resource.watchers, 0);
  assert.ok(resource.resumed > 0);
});

test('a reader gets events after the microtasks of their turn, so that the response to a write is sent first', async () => {
  const { client, resource } = setUp();
  const stop = new AbortController();
  const seen: string[] = [];
  const watching = (async () => {
    for await (const event of client.watch(SECRETS, { namespace: 'n', signal: stop.signal }))
      seen.push(event.object.metadata.name ?? '');
  })();
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  while (resource.watchers === 0) await turn();
  await turn();
  resource.put('n', { metadata: { name: 'a' } });
  for (let microtask = 0; microtask < 100; microtask += 1) await Promise.resolve();
  assert.deepEqual(seen, []);
  await turn();
  assert.deepEqual(seen, ['a']);
  stop.abort();
  await watching;
});
