/** The server supports every verb with a fake catalog, over HTTP/2 and HTTP/1.1. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Rest, ResourceCatalog } from '../../../../controlplane/model/rest.ts';
import { FakeCatalog, FakeResource, fakeInfo } from '../../../fakes/fake-catalog.ts';
import { startFakeServer, type FakeServer } from '../../../fakes/fake-server.ts';

const configMaps = new FakeResource(fakeInfo('configmaps', 'ConfigMap'));
const nodes = new FakeResource(fakeInfo('nodes', 'Node', { namespaced: false }));
let fake: FakeServer;

before(async () => {
  fake = await startFakeServer(new FakeCatalog([configMaps, nodes]));
});
after(() => fake.close());

const CONFIG_MAPS = '/api/v1/namespaces/n/configmaps';

test('an object goes through create, get, list, update, patch and delete', async () => {
  const created = await fake.json('POST', CONFIG_MAPS, { metadata: { name: 'a' }, data: { k: 'v' } });
  assert.equal(created.status, 201);
  const got = await fake.json('GET', `${CONFIG_MAPS}/a`);
  assert.deepEqual(got.body, created.body);
  const list = await fake.json('GET', CONFIG_MAPS);
  assert.equal(list.body['kind'], 'ConfigMapList');
  const { kind: _kind, apiVersion: _apiVersion, ...item } = created.body;
  assert.deepEqual(list.body['items'], [item]);
  const updated = await fake.json('PUT', `${CONFIG_MAPS}/a`, { metadata: { name: 'a' }, data: { k: 'w' } });
  assert.deepEqual(updated.body['data'], { k: 'w' });
  const patched = await fake.json('PATCH', `${CONFIG_MAPS}/a`, { data: { k: 'x' } });
  assert.deepEqual(patched.body['data'], { k: 'x' });
  const deleted = await fake.json('DELETE', `${CONFIG_MAPS}/a`);
  assert.equal(deleted.body['status'], 'Success');
  assert.equal((await fake.json('GET', `${CONFIG_MAPS}/a`)).status, 404);
});

test('HTTP/1.1 is served on the same port', async () => {
  configMaps.put('h1', { metadata: { name: 'a' } });
  const answer = await fake.request1('GET', '/api/v1/namespaces/h1/configmaps/a');
  assert.equal(answer.status, 200);
  assert.equal((JSON.parse(answer.text) as { kind: string }).kind, 'ConfigMap');
});

test('a watch streams what is there, what changes, and ends at its timeout', async () => {
  const quiet = new FakeResource(fakeInfo('secrets', 'Secret'));
  quiet.put('n', { metadata: { name: 'first' } });
  const own = await startFakeServer(new FakeCatalog([quiet]));
  try {
    const answer = own.request('GET', '/api/v1/namespaces/n/secrets?watch=1&timeoutSeconds=1');
    while (quiet.watchers === 0) await new Promise((resolve) => setImmediate(resolve));
    quiet.put('n', { metadata: { name: 'second' } });
    const { text, status } = await answer;
    assert.equal(status, 200);
    const events = text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { type: string; object: { metadata: { name: string } } });
    assert.deepEqual(
      events.map((event) => [event.type, event.object.metadata.name]),
      [
        ['ADDED', 'first'],
        ['ADDED', 'second'],
      ],
    );
    assert.equal(quiet.watchers, 0);
  } finally {
    await own.close();
  }
});

test('the scope of a path must fit the scope of the resource', async () => {
  for (const path of [
    '/api/v1/namespaces/n/nodes',
    '/api/v1/configmaps/a',
    '/api/v1/namespaces/n/nodes/x',
    '/api/v1//configmaps',
  ]) {
    const { status, body } = await fake.json('GET', path);
    assert.equal(status, 404, path);
    assert.equal(body['message'], 'the server could not find the requested resource');
  }
});

test('methods that a path does not have are refused', async () => {
  for (const [method, path] of [
    ['PUT', CONFIG_MAPS],
    ['POST', `${CONFIG_MAPS}/a`],
    ['POST', '/api/v1/configmaps'],
    ['OPTIONS', CONFIG_MAPS],
  ] as const) {
    const { status, body } = await fake.json(method, path);
    assert.equal(status, 405, `${method} ${path}`);
    assert.deepEqual(body['details'], {});
  }
});

test('unknown paths get a response in plain text', async () => {
  for (const path of ['/nothing', '/apis/none.example.com/v1/things', '/API/v1/nodes']) {
    const answer = await fake.request('GET', path);
    assert.equal(answer.text, '404 page not found\n', path);
    assert.equal(answer.headers['content-type'], 'text/plain; charset=utf-8');
  }
});

test('a request for a custom resource waits until its definition is served', async () => {
  const settled = Promise.withResolvers<void>();
  const asked: string[] = [];
  let rows: readonly Rest[] = [];
  const catalog: ResourceCatalog = {
    find: (group, version, resource, subresource) => new FakeCatalog(rows).find(group, version, resource, subresource),
    resources: () => [],
    onChange: () => () => undefined,
    settled: (group, resource) => {
      asked.push(`${resource}.${group}`);
      return resource === 'things' ? settled.promise : undefined;
    },
  };
  const server = await startFakeServer(catalog);
  try {
    const path = '/apis/example.com/v1/namespaces/n';
    const waiting = server.json('GET', `${path}/things`);
    assert.equal((await server.request('GET', `${path}/unknown`)).status, 404);
    rows = [new FakeResource(fakeInfo('things', 'Thing', { group: 'example.com' }))];
    settled.resolve();
    assert.equal((await waiting).body['kind'], 'ThingList');
    assert.deepEqual(asked, ['things.example.com', 'unknown.example.com']);
  } finally {
    await server.close();
  }
});

test('a body over the bound is refused and the connection stays usable', async () => {
  const answer = await fake.request(
    'POST',
    CONFIG_MAPS,
    { 'content-type': 'application/json' },
    Buffer.alloc(3 * 1024 * 1024 + 1, 32),
  );
  assert.equal(answer.status, 413);
  assert.equal((await fake.json('GET', CONFIG_MAPS)).status, 200);
});

test('bad credentials are 401', async () => {
  const answer = await fake.request('GET', CONFIG_MAPS, { authorization: 'Bearer bad' });
  assert.equal(answer.status, 401);
  assert.equal((JSON.parse(answer.text) as { message: string }).message, 'Unauthorized');
});
