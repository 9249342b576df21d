import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { EndpointSlice, Node, Service } from '../../../../api/kinds/kinds.ts';
import { endpointSlices, nodes, services } from '../../../../api/client/resources.ts';
import {
  BalancedNodes,
  balancerAddresses,
} from '../../../../controlplane/controllers/service/load-balancer-addresses.ts';
import { serviceLoadBalancers } from '../../../../controlplane/controllers/service/service-load-balancers.ts';
import { partsFlags, portSpan } from '../../../../controlplane/options/parts.ts';
import { type ControllerTest, controllerTest } from '../../../fakes/fake-controllers.ts';

const FINALIZER = 'service.kubernetes.io/load-balancer-cleanup';

function node(
  name: string,
  internal: readonly string[],
  more: {
    readonly labels?: object;
    readonly external?: string;
    readonly ready?: string;
    readonly agentPort?: number;
    readonly listening?: string;
  } = {},
): Node {
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: {
      ...{ name, labels: more.labels ?? {} },
      ...(more.listening === undefined ? {} : { annotations: { 'orchlet.local/listening-ports': more.listening } }),
    },
    spec: {},
    status: {
      addresses: [
        ...internal.map((address) => ({ type: 'InternalIP', address })),
        ...(more.external === undefined ? [] : [{ type: 'ExternalIP', address: more.external }]),
      ],
      conditions: [{ type: 'Ready', status: more.ready ?? 'True' }],
      daemonEndpoints: { kubeletEndpoint: { Port: more.agentPort ?? 10_250 } },
    },
  } as unknown as Node;
}

function service(name: string, spec: object = {}, created = '2026-01-01T00:00:00Z'): Service {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: 'shop', creationTimestamp: created },
    spec: { type: 'LoadBalancer', ipFamilies: ['IPv4'], ports: [{ port: 80, protocol: 'TCP' }], ...spec },
  } as unknown as Service;
}

const slice = (name: string, ...nodeNames: readonly string[]): EndpointSlice =>
  ({
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name, namespace: 'shop', labels: { 'kubernetes.io/service-name': name } },
    addressType: 'IPv4',
    endpoints: nodeNames.map((nodeName) => ({ addresses: ['10.0.0.1'], nodeName })),
  }) as unknown as EndpointSlice;

function balanced(all: readonly Node[]): BalancedNodes {
  const nodes = new BalancedNodes();
  for (const one of all) nodes.update(one);
  return nodes;
}

const TWO = [node('a', ['192.0.2.1', 'fd00::1']), node('b', ['192.0.2.2'])];

async function started(
  objects: Parameters<typeof controllerTest>[0] = {},
  isEnabled = true,
): Promise<
  ControllerTest & { readonly ips: (name: string) => string[]; readonly found: (name: string) => Service | undefined }
> {
  const t = controllerTest(objects);
  await t.start(serviceLoadBalancers({ isEnabled, apiServerPort: 6443, reservedPorts: RESERVED }));
  await t.advance(100);
  const found = (name: string): Service | undefined => t.client.peek(services, 'shop', name) as Service | undefined;
  return {
    ...t,
    found,
    ips: (name) => (found(name)?.status?.loadBalancer?.ingress ?? []).map(({ ip = '', ipMode }) => `${ip} ${ipMode}`),
  };
}

/** The default of `--service-lb-reserved-ports`. */
const RESERVED = partsFlags.serviceLbReservedPorts.default.flatMap((text) => portSpan(text) ?? []);
const NODES = TWO.map((each) => [nodes, each] as const);

describe('the addresses of a load balancer', () => {
  it('are those of ready nodes that are not excluded, external ones first choice', () => {
    const { all } = balanced([
      ...TWO,
      node('unready', ['192.0.2.3'], { ready: 'False' }),
      node('excluded', ['192.0.2.4'], { labels: { 'node.kubernetes.io/exclude-from-external-load-balancers': '' } }),
      node('cloud', ['10.0.0.5', 'fd00::5'], { external: '203.0.113.5' }),
      {
        ...node('leaving', ['192.0.2.6']),
        metadata: { name: 'leaving', deletionTimestamp: '2026-01-01T00:00:00Z' },
      } as Node,
    ]);
    const families = { ipFamilies: ['IPv6', 'IPv4'] };
    assert.deepEqual(
      balancerAddresses(service('web', families), all, () => new Set()),
      ['fd00::1', 'fd00::5', '192.0.2.1', '192.0.2.2', '203.0.113.5'],
    );
    assert.deepEqual(
      balancerAddresses(service('web', { loadBalancerIP: '192.0.2.2' }), all, () => new Set()),
      ['192.0.2.2'],
    );
  });
});

describe('a change of a node', () => {
  it('reads that node alone, because nodes send heartbeats', () => {
    const nodes = new BalancedNodes();
    let reads = 0;
    const counted = (one: Node): Node =>
      Object.defineProperty({ ...one }, 'status', { get: () => ((reads += 1), one.status) });
    for (let at = 0; at < 100; at += 1) nodes.update(counted(node(`node-${at}`, ['192.0.2.1'])));
    reads = 0;
    assert.equal(nodes.update(counted(node('node-7', ['192.0.2.1']))), false);
    assert.equal(reads, 1);
    assert.equal(nodes.update(node('node-7', ['192.0.2.7'])), true);
    assert.equal(nodes.all.find(({ name }) => name === 'node-7')?.addresses[0], '192.0.2.7');
  });

  it('that receives no traffic before and afterwards changes nothing', () => {
    const nodes = balanced(TWO);
    const unready = node('c', ['192.0.2.3'], { ready: 'False' });
    assert.equal(nodes.update(unready), false);
    assert.equal(nodes.remove(unready), false);
    assert.equal(nodes.update(node('a', [], { ready: 'False' })), true);
    assert.deepEqual(
      nodes.all.map(({ name }) => name),
      ['b'],
    );
  });
});

describe('a node that lies', () => {
  it('makes no address of the host or of a metadata service an address of load balancers', () => {
    const claimed = ['127.0.0.1', '169.254.169.254', '0.0.0.0', '224.0.0.1', 'fe80::1', '::1', '192.0.2.9'];
    assert.deepEqual(balanced([node('evil', claimed)]).all[0]?.addresses, ['192.0.2.9']);
    assert.deepEqual(balanced([node('evil', [], { external: '169.254.169.254' })]).all[0]?.addresses, []);
  });

  it('about the port of its agent takes that port from services at its own addresses alone', async () => {
    const evil = node('evil', ['192.0.2.9'], { agentPort: 80 });
    const t = await started({ objects: [...NODES, [nodes, evil], [services, service('web')]] });
    assert.deepEqual(t.ips('web'), ['192.0.2.1 VIP', '192.0.2.2 VIP']);
    await t.stop();
  });
});

describe('services of type LoadBalancer', () => {
  it('get the addresses of the nodes and a finalizer, and follow the nodes', async () => {
    const t = await started({ objects: [...NODES, [services, service('web')]] });
    assert.deepEqual(t.ips('web'), ['192.0.2.1 VIP', '192.0.2.2 VIP']);
    assert.deepEqual(t.found('web')?.metadata.finalizers, [FINALIZER]);
    assert.ok(t.events().includes('Normal EnsuredLoadBalancer Ensured load balancer'));
    await t.client.delete(nodes, '', 'a');
    await t.advance(100);
    assert.deepEqual(t.ips('web'), ['192.0.2.2 VIP']);
    await t.stop();
  });

  it('get only nodes with an endpoint under a Local policy', async () => {
    const local = service('web', { externalTrafficPolicy: 'Local' });
    const t = await started({ objects: [...NODES, [services, local], [endpointSlices, slice('web', 'b')]] });
    assert.deepEqual(t.ips('web'), ['192.0.2.2 VIP']);
    await t.client.update(endpointSlices, { ...t.client.peek(endpointSlices, 'shop', 'web'), ...slice('web', 'a') });
    await t.advance(100);
    assert.deepEqual(t.ips('web'), ['192.0.2.1 VIP']);
    await t.stop();
  });

  it('of another class, and of other types, are left alone', async () => {
    const status = { loadBalancer: { ingress: [{ ip: '203.0.113.1', ipMode: 'VIP' }] } };
    const foreign = { ...service('foreign', { loadBalancerClass: 'example.com/lb' }), status };
    foreign.metadata.finalizers = [FINALIZER];
    const own = service('own', { loadBalancerClass: 'orchlet.local/service-lb', ports: [{ port: 81 }] });
    const t = await started({
      objects: [
        ...NODES,
        [services, foreign as Service],
        [services, own],
        [services, service('node', { type: 'NodePort' })],
      ],
    });
    assert.deepEqual(t.ips('foreign'), ['203.0.113.1 VIP']);
    assert.deepEqual(t.found('foreign')?.metadata.finalizers, [FINALIZER]);
    assert.equal(t.ips('own').length, 2);
    assert.deepEqual([t.ips('node'), t.found('node')?.metadata.finalizers], [[], undefined]);
    await t.client.delete(services, 'shop', 'foreign');
    await t.advance(100);
    assert.ok(t.found('foreign') !== undefined, 'its controller has not finished');
    await t.stop();
  });

  it('wait for a port that another service has, with an event, and get it when it is free', async () => {
    const t = await started({ objects: [...NODES, [services, service('first')]] });
    await t.client.create(
      services,
      'shop',
      service('second', { ports: [{ port: 81 }, { port: 80 }] }, '2020-01-01T00:00:00Z'),
    );
    await t.client.create(services, 'shop', service('third', { ports: [{ port: 81, protocol: 'TCP' }] }));
    await t.client.create(services, 'shop', service('datagrams', { ports: [{ port: 80, protocol: 'UDP' }] }));
    await t.advance(100);
    assert.deepEqual(
      ['first', 'second', 'third', 'datagrams'].map((name) => t.ips(name).length),
      [2, 0, 2, 2],
    );
    assert.ok(
      t
        .events()
        .some((event) =>
          /^Warning SyncLoadBalancerFailed .*TCP 80 of the nodes is in use by the service shop\/first/.test(event),
        ),
    );
    await t.client.delete(services, 'shop', 'first');
    await t.advance(100);
    assert.equal(t.found('first'), undefined);
    assert.deepEqual(t.ips('second'), [], 'its other port is in use');
    await t.client.delete(services, 'shop', 'third');
    await t.advance(100);
    assert.equal(t.ips('second').length, 2);
    await t.stop();
  });

  it('keep their ports when the controller restarts', async () => {
    const holder = service('holder', {}, '2026-02-01T00:00:00Z');
    holder.metadata.annotations = { 'orchlet.local/service-lb': 'true' };
    const status = { loadBalancer: { ingress: [{ ip: '192.0.2.1', ipMode: 'VIP' }] } };
    const t = await started({
      objects: [...NODES, [services, service('older')], [services, { ...holder, status } as Service]],
    });
    assert.deepEqual([t.ips('older').length, t.ips('holder').length], [0, 2]);
    await t.stop();
  });

  it('do not get the ports of the API server, of etcd and of agents', async () => {
    const reserved = [6443, 2379, 2380, 10_250];
    const of = (port: number): Service => service(`port-${port}`, { ports: [{ port, protocol: 'TCP' }] });
    const t = await started({ objects: [...NODES, ...reserved.map((port) => [services, of(port)] as const)] });
    for (const port of reserved) assert.deepEqual(t.ips(`port-${port}`), []);
    const text = t.events().join('\n');
    assert.equal(text.match(/belongs to the API server or to etcd/g)?.length, 3);
    assert.match(text, /port 10250 of the nodes is reserved/);
    await t.stop();
  });

  it('do not get the port of ssh and other reserved ones, whatever the protocol', async () => {
    const of = (port: number, protocol: string): Service =>
      service(`port-${port}-${protocol.toLowerCase()}`, { ports: [{ port, protocol }] });
    const asked = [of(22, 'TCP'), of(22, 'UDP'), of(10_255, 'TCP'), of(8472, 'UDP'), of(51_820, 'UDP')];
    const t = await started({
      objects: [...NODES, ...[...asked, of(23, 'TCP')].map((one) => [services, one] as const)],
    });
    for (const { metadata } of asked) assert.deepEqual(t.ips(metadata.name ?? ''), []);
    assert.equal(t.ips('port-23-tcp').length, 2);
    const text = t.events().join('\n');
    assert.equal(
      text.match(/SyncLoadBalancerFailed .* is reserved \(--service-lb-reserved-ports\)/g)?.length,
      asked.length,
    );
    await t.stop();
  });

  it('do not get ports on which the host of a node listens, at the addresses of that node', async () => {
    const busy = node('busy', ['192.0.2.9'], { listening: 'TCP 22,TCP 80,UDP 81' });
    const udp = service('udp', { ports: [{ port: 81 }] });
    const t = await started({
      objects: [...NODES, [nodes, busy], [services, service('web')], [services, udp]],
    });
    assert.deepEqual(t.ips('web'), ['192.0.2.1 VIP', '192.0.2.2 VIP']);
    assert.equal(t.ips('udp').length, 3);
    for (const each of TWO) await t.client.delete(nodes, '', each.metadata.name ?? '');
    await t.advance(100);
    assert.deepEqual(t.ips('web'), []);
    assert.match(t.events().join('\n'), /the agent or another process of the host has one of its ports/);
    await t.stop();
  });

  it('lose what they got when their type changes or they are deleted', async () => {
    const t = await started({
      objects: [...NODES, [services, service('web')], [services, service('gone', { ports: [{ port: 81 }] })]],
    });
    const web = t.found('web');
    assert.ok(web !== undefined);
    await t.client.update(services, { ...web, spec: { ...web.spec, type: 'ClusterIP' } });
    await t.client.delete(services, 'shop', 'gone');
    await t.advance(100);
    assert.deepEqual([t.ips('web'), t.found('web')?.metadata.finalizers ?? []], [[], []]);
    assert.equal(t.found('web')?.metadata.annotations?.['orchlet.local/service-lb'], undefined);
    assert.equal(t.found('gone'), undefined);
    await t.stop();
  });

  it('are given back by a disabled part, and only those that it had', async () => {
    const marked = service('web');
    marked.metadata.annotations = { 'orchlet.local/service-lb': 'true' };
    marked.metadata.finalizers = [FINALIZER];
    const status = { loadBalancer: { ingress: [{ ip: '192.0.2.1', ipMode: 'VIP' }] } };
    const foreign = { ...service('foreign', { ports: [{ port: 81 }] }), status };
    const t = await started(
      { objects: [...NODES, [services, { ...marked, status } as Service], [services, foreign as Service]] },
      false,
    );
    assert.deepEqual([t.ips('web'), t.found('web')?.metadata.finalizers ?? []], [[], []]);
    assert.equal(t.ips('foreign').length, 1);
    await t.stop();
  });
});
