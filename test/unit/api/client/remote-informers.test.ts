/** Tests informers of a server that sends malformed objects, of each kind that agents read. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import type { ClientWatchEvent, Resource } from '../../../../api/client/client.ts';
import { remoteInformers } from '../../../../api/client/remote-informers.ts';
import {
  configMaps,
  endpointSlices,
  namespaces,
  networkPolicies,
  nodes,
  pods,
  services,
} from '../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const ROOT = join(import.meta.dirname, '../../../..');

const MALFORMED: readonly [Resource, string, object][] = [
  [services, 'spec that is a text', { spec: 'text' }],
  [services, 'ports that are a number', { spec: { ports: 5 } }],
  [services, 'a port that is a text', { spec: { ports: [{ port: 'http' }] } }],
  [services, 'addresses that are objects', { spec: { clusterIPs: [{}] } }],
  [endpointSlices, 'endpoints that are an object', { endpoints: {}, addressType: 'IPv4' }],
  [endpointSlices, 'an address that is a number', { endpoints: [{ addresses: [5] }], addressType: 'IPv4' }],
  [nodes, 'a pod range that is a list', { spec: { podCIDR: [] } }],
  [nodes, 'addresses that are texts', { status: { addresses: ['10.0.0.1'] } }],
  [nodes, 'annotations that are no texts', { metadata: { annotations: { a: {} } } }],
  [nodes, 'a capacity that is no quantity', { status: { capacity: { cpu: 'many' } } }],
  [networkPolicies, 'rules that are texts', { spec: { podSelector: {}, ingress: ['all'] } }],
  [networkPolicies, 'a block that is a text', { spec: { podSelector: {}, egress: [{ to: [{ ipBlock: 'all' }] }] } }],
  [namespaces, 'labels that are a list', { metadata: { labels: ['a'] } }],
  [pods, 'addresses that are numbers', { spec: { containers: [] }, status: { podIPs: [{ ip: 5 }] } }],
  [configMaps, 'data that is a text', { data: 'text' }],
];

function named(name: string, { metadata, ...object }: Record<string, object>, version: string): KubeObject {
  return { ...object, metadata: { name, uid: name, resourceVersion: version, ...metadata } };
}

/** Resolves to what the handlers of an informer hear of a server that sends the events after its empty contents. */
async function heardOf(resource: Resource, events: readonly ClientWatchEvent[]): Promise<readonly string[]> {
  const clock = new FakeClock();
  const client = new FakeClient(clock, []);
  const watch = client.watch.bind(client);
  client.watch = async function* (...request) {
    for await (const event of watch(...request)) {
      yield event;
      yield* events;
    }
  };
  const informers = remoteInformers({ client, clock, logger: silentLogger });
  const heard: string[] = [];
  const version = ({ metadata }: KubeObject): string => `${metadata.name} ${metadata.resourceVersion}`;
  informers.for(resource).addHandler({
    add: (object) => heard.push(`add ${version(object)}`),
    update: (_before, object) => heard.push(`update ${version(object)}`),
    delete: (object) => heard.push(`delete ${version(object)}`),
  });
  await clock.advance(10);
  await informers.close();
  return heard;
}

for (const [resource, what, object] of MALFORMED) {
  test(`an object of ${resource.resource} with ${what} is left out, and others are heard`, async () => {
    const heard = await heardOf(resource, [
      { type: 'ADDED', object: named('broken', { ...object }, '2') },
      { type: 'ADDED', object: named('other', {}, '3') },
    ]);
    assert.deepEqual(heard, ['add other 3']);
  });
}

test('an object that becomes malformed stays as it was, and can be deleted', async () => {
  const heard = await heardOf(services, [
    { type: 'ADDED', object: named('a', { spec: { clusterIP: '10.0.0.1' } }, '2') },
    { type: 'MODIFIED', object: named('a', { spec: { clusterIP: [] } }, '3') },
    { type: 'DELETED', object: named('a', { spec: { clusterIP: [] } }, '4') },
  ]);
  assert.deepEqual(heard, ['add a 2', 'delete a 2']);
});

test('a malformed object of a list is left out, and absent and empty lists are lists where a kind always has one', async () => {
  const clock = new FakeClock();
  const client = new FakeClient(clock, []);
  const slices = [
    named('broken', { endpoints: {} }, '2'),
    named('empty', { endpoints: null as never, ports: null as never }, '3'),
    named('addressless', { endpoints: [{ addresses: null }] as never }, '4'),
  ];
  client.list = async () => ({ metadata: { resourceVersion: '5' }, items: slices });
  const informers = remoteInformers({ client, clock, logger: silentLogger, watchList: false });
  const informer = informers.for(endpointSlices);
  await clock.advance(10);
  const lists = informer
    .list()
    .map(({ metadata, endpoints }) => [metadata.name, endpoints?.map((one) => one.addresses)]);
  assert.deepEqual(lists, [
    ['empty', []],
    ['addressless', [[]]],
  ]);
  await informers.close();
});

test('every informer of the agent checks what it reads; the pods of the node are checked by their mux', () => {
  const unchecked = globSync('agent/**/*.ts', { cwd: ROOT }).filter((path) =>
    readFileSync(join(ROOT, path), 'utf8').includes('new Informers('),
  );
  assert.deepEqual(unchecked, ['agent/sources/api-source.ts']);
});
