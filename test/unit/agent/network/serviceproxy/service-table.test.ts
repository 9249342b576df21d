import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type PortChange, ServiceTable } from '../../../../../agent/network/serviceproxy/service-table.ts';
import { inOneSlice } from '../../../../../api/machinery/time-slice.ts';
import type { EndpointSlice, Service } from '../../../../../api/kinds/kinds.ts';

function service(name: string, clusterIp: string, spec: object = {}, created = '2026-01-01T00:00:00Z'): Service {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: 'shop', creationTimestamp: created },
    spec: { clusterIPs: [clusterIp], ports: [{ port: 80, protocol: 'TCP' }], ...spec },
  } as unknown as Service;
}

function tableOf(): { readonly put: (...services: Service[]) => string[]; readonly drop: (name: string) => string[] } {
  const known = new Map<string, Service>();
  const table = new ServiceTable({
    family: 'IPv4',
    service: (key) => known.get(key),
    slicesOf: () => [],
    place: () => ({ nodeName: 'here', zone: '' }),
  });
  const shown = (changes: readonly PortChange[]): string[] =>
    changes.flatMap(({ before, after }) =>
      (after.length > 0 ? after : before.map((port) => ({ ...port, externalIps: ['gone'] }))).map(
        ({ id, externalIps, loadBalancerIps, nodePort }) =>
          `${id} ${[...externalIps, ...loadBalancerIps, ...(nodePort === 0 ? [] : [nodePort])].join(' ')}`.trim(),
      ),
    );
  return {
    put(...services) {
      for (const each of services) known.set(`shop/${each.metadata.name}`, each);
      return shown(inOneSlice(table.update(services.map(({ metadata }) => `shop/${metadata.name}`))));
    },
    drop(name) {
      known.delete(`shop/${name}`);
      return shown(inOneSlice(table.update([`shop/${name}`])));
    },
  };
}

describe('the table of services', () => {
  it('reports the services that changed alone', () => {
    const { put, drop } = tableOf();
    assert.deepEqual(put(service('a', '10.96.0.1'), service('b', '10.96.0.2')), ['shop/a:', 'shop/b:']);
    assert.deepEqual(put(service('a', '10.96.0.1', { externalIPs: ['203.0.113.1'] })), ['shop/a: 203.0.113.1']);
    assert.deepEqual(drop('b'), ['shop/b: gone']);
    assert.deepEqual(drop('unknown'), []);
  });

  it('gives an address and port to the oldest service, and to the next one when it is free', () => {
    const { put, drop } = tableOf();
    const external = { externalIPs: ['203.0.113.1'] };
    put(service('old', '10.96.0.1', external, '2026-01-01T00:00:00Z'));
    assert.deepEqual(put(service('a', '10.96.0.2', external, '2026-01-02T00:00:00Z')), [
      'shop/a:',
      'shop/old: 203.0.113.1',
    ]);
    const other = { ...external, ports: [{ port: 81, protocol: 'TCP' }] };
    assert.deepEqual(put(service('other', '10.96.0.3', other)), ['shop/other: 203.0.113.1']);
    assert.deepEqual(drop('old'), ['shop/old: gone', 'shop/a: 203.0.113.1']);
  });

  it('takes an external address from a service when it becomes a cluster IP, and gives it back', () => {
    const { put, drop } = tableOf();
    put(service('a', '10.96.0.1', { externalIPs: ['10.96.0.9'] }));
    assert.deepEqual(put(service('late', '10.96.0.9')), ['shop/late:', 'shop/a:']);
    assert.deepEqual(drop('late'), ['shop/late: gone', 'shop/a: 10.96.0.9']);
  });

  it('has no two services with one cluster IP or node port, whatever an API server allows', () => {
    const { put } = tableOf();
    const ports = [{ port: 80, protocol: 'TCP', nodePort: 30_080 }];
    put(service('a', '10.96.0.1', { ports }));
    assert.deepEqual(put(service('b', '10.96.0.2', { ports })), ['shop/b:', 'shop/a: 30080']);
    assert.deepEqual(put(service('c', '10.96.0.1')), ['shop/a: 30080']);
  });
});

describe('a service that claims what the cluster needs', () => {
  const known = new Map<string, Service>();
  let servers: readonly string[] = [];
  const slicesOf = (namespace: string): readonly EndpointSlice[] =>
    namespace === 'default'
      ? [
          {
            addressType: 'IPv4',
            metadata: {},
            endpoints: servers.map((address) => ({ addresses: [address] })),
            ports: [{ name: '', port: 6443 }],
          } as unknown as EndpointSlice,
        ]
      : [];
  const table = new ServiceTable({
    family: 'IPv4',
    service: (key) => known.get(key),
    slicesOf,
    place: () => ({
      ...{ nodeName: 'here', zone: '', nodeIps: ['192.0.2.77'], externalIps: ['203.0.113.77'] },
      ...{ reservedPorts: ['TCP 10250', 'UDP 8472'], listeningPorts: ['TCP 22'] },
    }),
  });
  const put = (key: string, spec: object): readonly string[] => {
    const [namespace = '', name = ''] = key.split('/');
    const made = service(name, spec === API ? '10.96.0.1' : '10.96.0.7', spec);
    known.set(key, { ...made, metadata: { ...made.metadata, namespace } });
    return inOneSlice(table.update([key])).flatMap(({ after }) => after.flatMap(({ externalIps }) => externalIps));
  };
  const API = {};
  const claim = (address: string, protocol: string, port: number): object => ({
    externalIPs: [address],
    ports: [{ protocol, port, nodePort: 0 }],
  });

  it('gets no address and port of an API server, whichever of them comes first', () => {
    servers = ['192.0.2.1'];
    put('default/kubernetes', API);
    assert.deepEqual(put('shop/evil', claim('192.0.2.1', 'TCP', 6443)), []);
    assert.deepEqual(put('shop/evil', claim('192.0.2.2', 'TCP', 6443)), ['192.0.2.2']);
    servers = ['192.0.2.1', '192.0.2.2'];
    assert.deepEqual(put('default/kubernetes', API), [], 'it is taken from the service');
    assert.deepEqual(put('shop/evil', claim('192.0.2.1', 'UDP', 6443)), ['192.0.2.1'], 'another protocol is free');
  });

  it('gets no port of etcd on the hosts of API servers', () => {
    servers = ['192.0.2.1'];
    put('default/kubernetes', API);
    for (const port of [2379, 2380]) assert.deepEqual(put('shop/evil', claim('192.0.2.1', 'TCP', port)), []);
    assert.deepEqual(put('shop/evil', claim('192.0.2.9', 'TCP', 2379)), ['192.0.2.9'], 'elsewhere it is free');
  });

  it('gets no port at an address of this node on which a process of its host listens', () => {
    for (const address of ['192.0.2.77', '203.0.113.77']) {
      assert.deepEqual(put('shop/evil', claim(address, 'TCP', 22)), []);
      assert.deepEqual(put('shop/evil', claim(address, 'UDP', 22)), [address]);
    }
    assert.deepEqual(put('shop/evil', claim('203.0.113.1', 'TCP', 22)), ['203.0.113.1'], 'elsewhere it is free');
  });

  it('gets no port of agents and of the pod network at any address', () => {
    assert.deepEqual(put('shop/evil', claim('192.0.2.9', 'TCP', 10250)), []);
    assert.deepEqual(put('shop/evil', claim('192.0.2.9', 'UDP', 8472)), []);
    assert.deepEqual(put('shop/evil', claim('192.0.2.9', 'TCP', 8472)), ['192.0.2.9']);
  });
});
