/** The path and query that a proxy sends are those of the client byte for byte, or it sends nothing. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConnectRequest, ConnectTarget } from '../../../../../../controlplane/model/rest.ts';
import { createConnectRest } from '../../../../../../controlplane/registry/kinds/core/connections.ts';
import { fakeInfo } from '../../../../../fakes/fake-catalog.ts';

const OBJECTS = {
  pods: { metadata: { name: 'p', namespace: 'n' }, status: { podIP: '10.1.0.2', podIPs: [{ ip: '10.1.0.2' }] } },
  nodes: { metadata: { name: 'p' }, status: { addresses: [{ type: 'InternalIP', address: '10.0.0.2' }] } },
  services: { metadata: { name: 'p', namespace: 'n' }, spec: { ports: [{ port: 80 }] } },
  endpoints: {
    subsets: [{ addresses: [{ ip: '10.1.0.2', targetRef: { namespace: 'n', name: 'p' } }], ports: [{ port: 8080 }] }],
  },
} as const;
const admission = { admit: () => Promise.resolve(), validate: () => Promise.resolve() };
const store = (object: object) => ({ admission, cache: { get: () => ({ object }) } });
type Stores = Parameters<typeof createConnectRest>[0];
const stores = {
  ...Object.fromEntries(Object.entries(OBJECTS).map(([name, object]) => [name, store(object)])),
  addressTypes: ['InternalIP'],
} as unknown as Stores;

async function targetOf(resource: string, kind: string, rawPath: string, rawQuery: string): Promise<string> {
  const subresource = { name: 'proxy', group: '', version: 'v1', kind, verbs: ['get'] };
  const rest = createConnectRest(stores, fakeInfo(resource, kind), subresource);
  const request = { method: 'GET', path: rawPath, rawPath, rawQuery, query: new URLSearchParams(rawQuery) };
  const context = { user: { name: 'ann', groups: [] }, signal: new AbortController().signal };
  const target = await rest?.connect?.(context as never, 'n', 'p', request as ConnectRequest);
  return (target as ConnectTarget).target;
}

for (const [resource, kind] of [
  ['pods', 'PodProxyOptions'],
  ['nodes', 'NodeProxyOptions'],
  ['services', 'ServiceProxyOptions'],
] as const)
  test(`the proxy of ${resource} sends what the client has sent, and nothing that servers may read in another way`, async () => {
    assert.equal(await targetOf(resource, kind, '/a%2Fb%23/', 'x=%23&y=/?'), '/a%2Fb%23/?x=%23&y=/?');
    for (const [path, query] of [
      ['/a/../b', ''],
      ['/a\\..\\b', ''],
      ['/admin#/public', ''],
      ['/a', 'mine=1#&all=1'],
    ] as const)
      await assert.rejects(targetOf(resource, kind, path, query), { code: 400 }, `${path}?${query}`);
  });
