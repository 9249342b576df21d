/**
 * APIServices: the addresses of their backends, the resources that they serve, and the headers with the user that they receive.
 */
import assert from 'node:assert/strict';
import { validateHeaderValue } from 'node:http';
import { describe, test } from 'node:test';
import type { EndpointSlice, Service } from '../../../../../api/kinds/kinds.ts';
import { apiServices, endpointSlices, services } from '../../../../../api/client/resources.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { newStatusError } from '../../../../../api/meta/status-error.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';
import { Aggregator, userHeaders } from '../../../../../controlplane/registry/aggregation/aggregator.ts';
import { rowsOf } from '../../../../../controlplane/registry/aggregation/backend-discovery.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { BackendError, backendOf } from '../../../../../controlplane/model/service-backend.ts';

function sourcesOf(service: object | undefined, slice: object | undefined) {
  const objects = [
    ...(service === undefined ? [] : [{ resource: services, object: service as KubeObject }]),
    ...(slice === undefined ? [] : [{ resource: endpointSlices, object: slice as KubeObject }]),
  ];
  const listers = fixedListers(objects);
  return { services: listers.of<Service>(services), endpointSlices: listers.of<EndpointSlice>(endpointSlices) };
}

const metadata = { namespace: 'n', name: 's' };
const service = { metadata, spec: { ports: [{ name: 'api', port: 443 }] } };
const slice = (ready: boolean) => ({
  metadata: { namespace: 'n', name: 's-1', labels: { 'kubernetes.io/service-name': 's' } },
  ports: [{ name: 'api', port: 8443 }],
  endpoints: [{ addresses: ['10.0.0.7'], conditions: { ready } }],
});
const reference = { namespace: 'n', name: 's', port: 443 };
const first = () => 0;

describe('the backend of an API service', () => {
  test('is a ready address of its service, on the port behind the named one', () => {
    const found = backendOf(reference, sourcesOf(service, slice(true)), first);
    assert.deepEqual(found, { host: '10.0.0.7', port: 8443, service: 'service/n/s', serverName: 's.n.svc' });
  });
  const refused: readonly (readonly [string, object | undefined, object | undefined, number])[] = [
    ['ServiceNotFound', undefined, undefined, 443],
    ['ServicePortError', service, slice(true), 80],
    ['EndpointsNotFound', service, undefined, 443],
    ['MissingEndpoints', service, slice(false), 443],
  ];
  for (const [reason, one, slices, port] of refused) {
    test(`is missing: ${reason}`, () => {
      assert.throws(
        () => backendOf({ ...reference, port }, sourcesOf(one, slices), first),
        (error) => error instanceof BackendError && error.reason === reason,
      );
    });
  }
});

test('the resources of a backend become rows with their subresources', () => {
  const [row, ...others] = rowsOf('ext.io', 'v1', {
    resources: [
      { name: 'widgets', singularName: 'widget', kind: 'Widget', namespaced: true, verbs: ['get'] },
      { name: 'widgets/status', kind: 'Widget', verbs: ['update'] },
    ],
  });
  assert.equal(others.length, 0);
  assert.equal(row?.resource, 'widgets');
  assert.deepEqual(row.subresources, [
    { name: 'status', group: 'ext.io', version: 'v1', kind: 'Widget', verbs: ['update'] },
  ]);
  assert.throws(() => rowsOf('ext.io', 'v1', { kind: 'Status' }), /the response is no list of resources/);
});

const hostileResources: readonly (readonly [string, unknown])[] = [
  ['a number as verbs', [{ name: 'widgets', verbs: 5 }]],
  ['objects as short names', [{ name: 'widgets', shortNames: [{}] }]],
  ['a list as kind', [{ name: 'widgets', kind: [] }]],
  ['null as resource', [null]],
  ['a name of a megabyte', [{ name: 'w'.repeat(1_000_000) }]],
  ['fifty thousand resources', Array.from({ length: 50_000 }, (_, at) => ({ name: `w${at}` }))],
  ['thousands of categories', [{ name: 'widgets', categories: Array.from({ length: 5000 }, () => 'all') }]],
];
for (const [what, resources] of hostileResources) {
  test(`discovery of a backend with ${what} is refused, and does not become part of the discovery of the cluster`, () => {
    const startMs = performance.now();
    assert.throws(() => rowsOf('ext.io', 'v1', { resources }), /resource/);
    assert.ok(performance.now() - startMs < 1000);
  });
}

test('null in discovery is an empty list, as servers in Go send it', () => {
  const [row] = rowsOf('ext.io', 'v1', {
    resources: [{ name: 'widgets', shortNames: null, categories: null, verbs: null }],
  });
  assert.deepEqual([row?.shortNames, row?.categories, row?.verbs], [[], [], []]);
});

type FetchJson = ConstructorParameters<typeof Aggregator>[0]['fetchJson'];

function aggregatorOf(definition: KubeObject, fetchJson: FetchJson) {
  const listers = fixedListers([
    { resource: apiServices, object: definition },
    { resource: services, object: service as KubeObject },
    { resource: endpointSlices, object: slice(true) as KubeObject },
  ]);
  const clock = new FakeClock();
  const stop = new AbortController();
  const aggregator = new Aggregator({
    definitions: listers.of(apiServices),
    services: listers.of<Service>(services),
    endpointSlices: listers.of<EndpointSlice>(endpointSlices),
    client: new FakeClient(clock),
    clock,
    logger: silentLogger,
    signal: stop.signal,
    random: first,
    metrics: { observed: () => undefined, removed: () => undefined },
    frontProxy: () => ({ cert: '', key: '' }),
    checkOpenApi: () => undefined,
    fetchJson,
  });
  return { aggregator, stop };
}

test('a backend gets the user, the groups and the extra fields', () => {
  const user = { name: 'ann', uid: '7', groups: ['a', 'b'], extra: { 'x.io/Y': ['1'] } };
  assert.deepEqual(userHeaders(user), [
    ['x-remote-user', 'ann'],
    ['x-remote-uid', '7'],
    ['x-remote-group', 'a'],
    ['x-remote-group', 'b'],
    ['x-remote-extra-x.io%2fy', '1'],
  ]);
});

test('a backend gets names of other alphabets as UTF-8', () => {
  const sent = userHeaders({ name: 'jürgen', groups: ['名'] }).map(([, value]) =>
    Buffer.from(value, 'latin1').toString(),
  );
  assert.deepEqual(sent, ['jürgen', '名']);
  for (const [name, value] of userHeaders({ name: '名', groups: [] })) validateHeaderValue(name, value);
});

test('the group of APIServices is served here, so that what sends it elsewhere can be changed back', () => {
  const definition = {
    metadata: { name: 'v1.apiregistration.k8s.io' },
    spec: { group: 'apiregistration.k8s.io', version: 'v1', service: reference },
  };
  const { aggregator, stop } = aggregatorOf(definition, () => Promise.resolve({}));
  assert.equal(aggregator.find('apiregistration.k8s.io', 'v1'), undefined);
  assert.deepEqual(aggregator.versions(), []);
  stop.abort();
});

test('controllers read what a backend serves as themselves, and hear why where they cannot', async () => {
  const definition = {
    metadata: { name: 'v1beta2.custom.metrics.k8s.io' },
    spec: { group: 'custom.metrics.k8s.io', version: 'v1beta2', service: reference },
  };
  const asked: string[] = [];
  let answer: () => Promise<unknown> = () => Promise.resolve({ items: [] });
  const { aggregator, stop } = aggregatorOf(definition, (target, path, headers) => {
    if (path === METRICS) asked.push(`${target.host} ${headers.map(([name, value]) => `${name}=${value}`).join()}`);
    return answer();
  });
  const user = { name: 'hpa', groups: ['g'] };
  assert.deepEqual(await aggregator.get(METRICS, user), { items: [] });
  assert.deepEqual(asked, ['10.0.0.7 x-remote-user=hpa,x-remote-group=g']);
  const codeOf = (path: string) =>
    aggregator.get(path, user).then(
      () => 200,
      (error: { code?: number }) => error.code,
    );
  assert.equal(await codeOf('/apis/external.metrics.k8s.io/v1beta1/x'), 404);
  answer = () => Promise.reject(newStatusError(403, 'Forbidden', 'no'));
  assert.equal(await codeOf(METRICS), 403);
  answer = () => Promise.reject(new Error('away'));
  assert.equal(await codeOf(METRICS), 503);
  stop.abort();
});

const METRICS = '/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/pods/*/requests';
