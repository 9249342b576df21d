import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, test } from 'node:test';
import { createProtobufCodec } from '../../../../api/codec/protobuf.ts';
import { builtinResources } from '../../../../api/schema/resources.ts';
import type { ResourceInfo } from '../../../../api/schema/schema.ts';
import { loadSchema } from '../../../../api/schema/table.ts';
import type { AggregatedVersion } from '../../../../controlplane/registry/aggregation/aggregator.ts';
import type { ResourceCatalog } from '../../../../controlplane/model/rest.ts';
import { compareVersions } from '../../../../api/meta/version-order.ts';
import { installDiscovery } from '../../../../controlplane/server/discovery.ts';
import { storageVersionHash } from '../../../../controlplane/server/storage-version-hash.ts';
import { PathHandlers } from '../../../../controlplane/server/path-handlers.ts';
import { fakeInfo } from '../../../fakes/fake-catalog.ts';
import { at, members } from '../../../fakes/json-tree.ts';
import { startFakeServer, type FakeServer } from '../../../fakes/fake-server.ts';

const AGGREGATED = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';
const listeners: (() => void)[] = [];
let rows: readonly ResourceInfo[] = builtinResources();
const catalog: ResourceCatalog = {
  find: () => undefined,
  resources: () => rows,
  onChange: (listener) => {
    listeners.push(listener);
    return () => undefined;
  },
};
let others: readonly AggregatedVersion[] = [];
const custom = { listKind: 'ThingList', deprecation: '' };
const aggregated = {
  versions: () => others,
  onChange: (listener: () => void) => void listeners.push(listener),
};
let fake: FakeServer;

before(async () => {
  const paths = new PathHandlers();
  const protobuf = createProtobufCodec(loadSchema());
  installDiscovery(paths, { catalog, aggregated, protobuf, serverAddress: '192.0.2.1:6443' });
  fake = await startFakeServer(catalog, { paths });
});

after(() => fake.close());

async function read(
  path: string,
  accept = 'application/json',
): Promise<{ status: number; type: string; body: Record<string, unknown> }> {
  const { status, headers, text } = await fake.request('GET', path, { accept });
  return {
    status,
    type: String(headers['content-type']),
    body: text.startsWith('{') ? (JSON.parse(text) as Record<string, unknown>) : { text },
  };
}

test('/api names the core versions', async () => {
  const { body } = await read('/api');
  assert.equal(body['kind'], 'APIVersions');
  assert.deepEqual(body['versions'], ['v1']);
});

test('/apis names groups, their versions and the preferred one', async () => {
  const { body } = await read('/apis');
  const group = (body['groups'] as { name: string }[]).find(({ name }) => name === 'autoscaling');
  assert.deepEqual(group, {
    name: 'autoscaling',
    versions: [
      { groupVersion: 'autoscaling/v2', version: 'v2' },
      { groupVersion: 'autoscaling/v1', version: 'v1' },
    ],
    preferredVersion: { groupVersion: 'autoscaling/v2', version: 'v2' },
  });
  assert.equal((await read('/apis/apps/')).body['kind'], 'APIGroup');
});

test('the resources of a version have their subresources beside them', async () => {
  const { body } = await read('/api/v1/');
  const resources = body['resources'] as { name: string }[];
  const find = (name: string): unknown => resources.find((resource) => resource.name === name);
  assert.deepEqual(find('pods'), {
    name: 'pods',
    singularName: 'pod',
    namespaced: true,
    kind: 'Pod',
    verbs: ['create', 'delete', 'deletecollection', 'get', 'list', 'patch', 'update', 'watch'],
    shortNames: ['po'],
    categories: ['all'],
    storageVersionHash: 'xPOwRZ+Yhw8=',
  });
  assert.deepEqual(find('pods/eviction'), {
    name: 'pods/eviction',
    singularName: '',
    namespaced: true,
    group: 'policy',
    version: 'v1',
    kind: 'Eviction',
    verbs: ['create'],
  });
});

test('every version of a custom resource has the hash of the version in which its objects are stored', async () => {
  const before = rows;
  const of = (version: string): ResourceInfo =>
    fakeInfo('things', 'Thing', { group: 'example.com', version, custom: { ...custom, storedVersion: 'v1beta1' } });
  rows = [of('v1'), of('v1beta1')];
  for (const listener of listeners) listener();
  const hashes = await Promise.all(
    ['v1', 'v1beta1'].map(async (version) => (await read(`/apis/example.com/${version}`)).body['resources']),
  );
  const expected = createHash('sha256').update('example.com/v1beta1/Thing').digest().subarray(0, 8).toString('base64');
  for (const [thing] of hashes as { storageVersionHash: string }[][]) assert.equal(thing?.storageVersionHash, expected);
  rows = before;
  for (const listener of listeners) listener();
});

test('a path that is not served gets a Status in the API, and plain text elsewhere', async () => {
  assert.equal((await read('/api/v2')).body['kind'], 'Status');
  assert.equal((await read('/apis/apps/v9')).body['kind'], 'Status');
  assert.equal((await read('/apis/nothing.example.com')).body['text'], '404 page not found\n');
});

test('all groups are in one document with an ETag', async () => {
  const { body, type } = await read('/apis', `${AGGREGATED},application/json`);
  assert.equal(type, AGGREGATED);
  assert.equal(body['apiVersion'], 'apidiscovery.k8s.io/v2');
  const apps = members(body['items']).find(([, item]) => at(item, 'metadata', 'name') === 'apps')?.[1];
  const resources = members(at(apps, 'versions', 0, 'resources'));
  const deployments = resources.find(([, row]) => at(row, 'resource') === 'deployments')?.[1];
  assert.deepEqual(at(deployments, 'subresources', 0, 'responseKind'), {
    group: 'autoscaling',
    version: 'v1',
    kind: 'Scale',
  });
  const first = await fake.request('GET', '/apis', { accept: AGGREGATED });
  assert.deepEqual([first.headers['vary'], first.headers['cache-control']], ['Accept', 'public']);
  const plain = (await fake.request('GET', '/apis')).headers;
  assert.deepEqual([plain['vary'], plain['cache-control'], plain['etag']], [undefined, 'no-cache, private', undefined]);
  const again = await fake.request('GET', '/apis', {
    accept: AGGREGATED,
    'if-none-match': String(first.headers['etag']),
  });
  assert.equal(again.status, 304);
});

test('unknown forms fall back to the next, or are refused', async () => {
  const unknown = AGGREGATED.replace('v=v2', 'v=v9');
  assert.equal((await read('/apis', `${unknown},application/json`)).body['kind'], 'APIGroupList');
  assert.equal((await read('/apis', unknown)).status, 406);
  assert.equal((await read('/apis/apps', AGGREGATED)).status, 406);
  assert.equal((await read('/apis', AGGREGATED.replace('v=v2', 'v=v2beta1'))).status, 406);
  assert.equal((await read('/apis/apps', 'text/html')).status, 406);
  // A clause with the aggregated form has precedence, regardless of its quality.
  assert.equal((await read('/api', `application/json;q=0.9, ${AGGREGATED};q=0.1`)).type, AGGREGATED);
  assert.match((await read('/apis', 'application/yaml')).body['text'] as string, /^apiVersion: v1\n/);
});

test('the list of groups with a slash at the end has no aggregated form', async () => {
  assert.equal((await read('/apis/', AGGREGATED)).status, 406);
  assert.equal((await read('/apis/')).status, 200);
});

test('documents have a protobuf form', async () => {
  for (const path of ['/api', '/apis', '/apis/apps', '/apis/apps/v1']) {
    const { status, text } = await fake.request('GET', path, { accept: 'application/vnd.kubernetes.protobuf' });
    assert.equal(status, 200);
    assert.ok(text.startsWith('k8s\0'), path);
    assert.equal(text.slice(6, 8), path === '/api' ? '\n\0' : '\n\u0002', path);
  }
  const { headers } = await fake.request('GET', '/apis', {
    accept: AGGREGATED.replace('json', 'vnd.kubernetes.protobuf'),
  });
  assert.match(String(headers['content-type']), /^application\/vnd.kubernetes.protobuf;g=apidiscovery/);
});

test('a change of the catalog is seen at once', async () => {
  rows = [
    ...builtinResources(),
    fakeInfo('things', 'Thing', { group: 'example.com', version: 'v1beta1', custom }),
    fakeInfo('things', 'Thing', { group: 'example.com', custom }),
    fakeInfo('parts', 'Part', { group: 'a.k8s.io', version: 'v1alpha1', custom }),
    fakeInfo('parts', 'Part', { group: 'a.k8s.io', custom }),
  ];
  for (const listener of listeners) listener();
  const { body } = await read('/apis/example.com');
  assert.equal(at(body, 'preferredVersion', 'version'), 'v1');
  assert.equal(at((await read('/apis/a.k8s.io')).body, 'preferredVersion', 'version'), 'v1');
});

test('groups of other servers are sorted by their priority, also while the servers do not respond', async () => {
  const version = (group: string, groupPriority: number, name: string, versionPriority: number, stale = false) => ({
    ...{ group, groupPriority, version: name, versionPriority, stale },
    rows: stale ? [] : [fakeInfo('others', 'Other', { group, version: name, custom })],
  });
  others = [
    version('low.io', 100, 'v1', 1),
    version('high.io', 2000, 'v1', 10),
    version('high.io', 2000, 'v1beta1', 20, true),
  ];
  for (const listener of listeners) listener();
  const { body } = await read('/apis');
  const names = members(at(body, 'groups')).map(([, group]) => at(group, 'name'));
  assert.deepEqual(names.slice(-4), ['high.io', 'a.k8s.io', 'example.com', 'low.io']);
  const all = await read('/apis', AGGREGATED);
  const high = members(at(all.body, 'items')).find(([, item]) => at(item, 'metadata', 'name') === 'high.io');
  const shown = members(at(high?.[1], 'versions')).map(([, one]) => [at(one, 'version'), at(one, 'freshness')]);
  assert.deepEqual(shown, [
    ['v1beta1', 'Stale'],
    ['v1', 'Current'],
  ]);
});

test('versions are ordered by stability, then by number', () => {
  const sorted = ['v1alpha1', 'foo', 'v2', 'v1beta2', 'v10', 'bar', 'v1beta1', 'v1'].sort(compareVersions);
  assert.deepEqual(sorted, ['v10', 'v2', 'v1', 'v1beta2', 'v1beta1', 'v1alpha1', 'bar', 'foo']);
});

test('lists of groups answer every method and media range, and routes do not', async () => {
  const statusOf = async (method: string, path: string): Promise<number> =>
    (await fake.request(method, path, {})).status;
  assert.deepEqual(
    await Promise.all([statusOf('POST', '/apis'), statusOf('PUT', '/apis/apps'), statusOf('POST', '/apis/apps/v1')]),
    [200, 200, 405],
  );
  assert.deepEqual(await Promise.all([statusOf('POST', '/api/v2'), statusOf('POST', '/apis/apps/v2')]), [404, 404]);
  assert.equal((await read('/apis', 'application/*')).status, 200);
  assert.equal((await read('/api/v1', 'application/*')).status, 406);
  const { body } = await read('/apis', 'text/html');
  assert.equal('details' in body, false);
  assert.match(String(body['message']), /^only the following media types are accepted/);
});

test('built-in kinds have the hashes of the versions that kube-apiserver stores', () => {
  const hashes = builtinResources()
    .filter(({ version }) => version === 'v1')
    .map((row) => [`${row.group}/${row.resource}`, storageVersionHash(new Map([[row.version, [row]]]), row)] as const);
  const of = new Map(hashes);
  assert.equal(of.get('/events'), of.get('events.k8s.io/events'));
  assert.equal(of.get('events.k8s.io/events'), 'r2yiGXH7wu8=');
  assert.equal(of.get('apiextensions.k8s.io/customresourcedefinitions'), 'jfWCUB31mvA=');
  assert.equal(of.get('admissionregistration.k8s.io/mutatingadmissionpolicies'), 'LYmCf+UMVdg=');
  assert.equal(of.get('/pods'), 'xPOwRZ+Yhw8=');
});
