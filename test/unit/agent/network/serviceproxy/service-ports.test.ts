import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  healthCheckPort,
  type Place,
  type ServicePort,
} from '../../../../../agent/network/serviceproxy/service-ports.ts';
import { ServiceTable } from '../../../../../agent/network/serviceproxy/service-table.ts';
import { inOneSlice } from '../../../../../api/machinery/time-slice.ts';
import type { EndpointSlice, Service } from '../../../../../api/kinds/kinds.ts';
import { assertLinearTime } from '../../../../fuzz/growth.ts';

const PLACE = { nodeName: 'here', zone: 'a' };

function service(spec: object, name = 'web'): Service {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: 'shop' },
    spec: { clusterIPs: ['10.96.0.7'], ports: [{ port: 80, protocol: 'TCP', name: 'http' }], ...spec },
  } as unknown as Service;
}

function slice(endpoints: readonly object[], more: object = {}): EndpointSlice {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: 's', namespace: 'shop', labels: { 'kubernetes.io/service-name': 'web' } },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints,
    ...more,
  } as unknown as EndpointSlice;
}

const ips = (endpoints: readonly { readonly ip: string }[]): string[] => endpoints.map(({ ip }) => ip);
const keyOf = ({ metadata }: Service): string => `${metadata.namespace}/${metadata.name}`;

function only(
  services: Service[],
  slices: EndpointSlice[],
  family: 'IPv4' | 'IPv6' = 'IPv4',
  place: Place = PLACE,
): ServicePort[] {
  const byKey = new Map(services.map((each) => [keyOf(each), each]));
  const table = new ServiceTable({
    family,
    service: (key) => byKey.get(key),
    slicesOf: () => slices,
    place: () => place,
  });
  return inOneSlice(table.update(byKey.keys())).flatMap(({ after }) => after);
}

describe('the service ports of a node', () => {
  it('have no text from addresses and ranges that would break the rules of all services', () => {
    const spec = {
      type: 'LoadBalancer',
      externalIPs: ['010.0.0.1', '203.0.113.1\n-A ORC-SERVICES -j ACCEPT', 'fd00::1'],
      loadBalancerSourceRanges: ['198.51.100.0/24\n', ' 192.0.2.0/24', 'fd00::/8', 'x'],
    };
    const [port] = only([service(spec)], [slice([{ addresses: ['10.0.0.1\n'] }, { addresses: ['10.0.0.2'] }])]);
    assert.deepEqual(port?.externalIps, ['10.0.0.1']);
    assert.deepEqual(port?.sourceRanges, ['198.51.100.0/24', '192.0.2.0/24', '0.0.0.0/32']);
    assert.deepEqual(port?.internal, [{ ip: '10.0.0.2', port: 8080 }]);
  });

  it('have no external address that is the cluster IP of a service', () => {
    const victim = { ...service({ clusterIPs: ['10.96.0.10'] }, 'dns') };
    const thief = service({
      type: 'LoadBalancer',
      externalIPs: ['10.96.0.10', '010.96.0.10', '203.0.113.1'],
    });
    const status = { loadBalancer: { ingress: [{ ip: '10.96.0.10' }, { ip: '203.0.113.2' }] } };
    const ports = only([victim, { ...thief, status } as unknown as Service], []);
    const port = ports.find(({ id }) => id === 'shop/web:http');
    assert.deepEqual(port?.externalIps, ['203.0.113.1']);
    assert.deepEqual(port?.loadBalancerIps, ['203.0.113.2']);
    const ipv6 = [
      service({ clusterIPs: ['fd00::a'] }, 'dns'),
      service({ clusterIPs: ['fd00::b'], externalIPs: ['fd00:0::A'] }),
    ];
    assert.ok(only(ipv6, [], 'IPv6').every(({ externalIps }) => externalIps.length === 0));
  });

  it('are computed in time that grows with the number of ports of a service and its slices', async () => {
    const run = (size: number): void => {
      const names = Array.from({ length: size }, (_, at) => `p${at}`);
      const wide = service({ ports: names.map((name, at) => ({ name, port: at + 1, protocol: 'TCP' })) });
      const endpoints = slice([{ addresses: ['10.0.0.1'] }], {
        ports: names.map((name, at) => ({ name, port: at + 1, protocol: 'TCP' })),
      });
      const ports = only([wide], [endpoints]);
      assert.equal(ports.find(({ id }) => id === `shop/web:p${size - 1}`)?.internal[0]?.port, size);
    };
    await assertLinearTime(run, { minBytes: 1_000, maxBytes: 64_000, noticeableMs: 300 });
  });

  it('are open to nobody if no range is valid', () => {
    const [port] = only([service({ loadBalancerSourceRanges: ['10.0.0.0/33'] })], []);
    assert.deepEqual(port?.sourceRanges, ['0.0.0.0/32']);
  });

  it('use ready endpoints, and treat an absent condition as ready', () => {
    const [port] = only(
      [service({})],
      [slice([{ addresses: ['10.0.0.1'] }, { addresses: ['10.0.0.2'], conditions: { ready: false } }])],
    );
    assert.deepEqual(port?.internal, [{ ip: '10.0.0.1', port: 8080 }]);
  });

  it('fall back to terminating endpoints that still serve', () => {
    const ending = { ready: false, serving: true, terminating: true };
    const [port] = only(
      [service({})],
      [
        slice([
          { addresses: ['10.0.0.1'], conditions: ending },
          { addresses: ['10.0.0.2'], conditions: { ...ending, serving: false } },
        ]),
      ],
    );
    assert.deepEqual(ips(port?.internal ?? []), ['10.0.0.1']);
    assert.equal(port?.hasEndpoints, true);
  });

  it('only use local endpoints under a Local policy, and show whether others exist', () => {
    const slices = [
      slice([
        { addresses: ['10.0.0.1'], nodeName: 'here' },
        { addresses: ['10.0.0.2'], nodeName: 'there' },
      ]),
    ];
    const [outside] = only([service({ externalTrafficPolicy: 'Local' })], slices);
    assert.deepEqual(
      [ips(outside?.internal ?? []), ips(outside?.external ?? [])],
      [['10.0.0.1', '10.0.0.2'], ['10.0.0.1']],
    );
    const [inside] = only([service({ internalTrafficPolicy: 'Local' })], slices);
    assert.deepEqual(ips(inside?.internal ?? []), ['10.0.0.1']);
    const [nobody] = only(
      [service({ internalTrafficPolicy: 'Local' })],
      [slice([{ addresses: ['10.0.0.2'], nodeName: 'there' }])],
    );
    assert.deepEqual([nobody?.internal, nobody?.hasEndpoints], [[], true]);
  });

  it('follow topology hints to the zone or node if every ready endpoint has one', () => {
    const inZone = (ip: string, zone: string) => ({ addresses: [ip], hints: { forZones: [{ name: zone }] } });
    const [near] = only([service({})], [slice([inZone('10.0.0.1', 'a'), inZone('10.0.0.2', 'b')])]);
    assert.deepEqual(ips(near?.internal ?? []), ['10.0.0.1']);
    const [partly] = only([service({})], [slice([inZone('10.0.0.1', 'a'), { addresses: ['10.0.0.2'] }])]);
    assert.deepEqual(ips(partly?.internal ?? []), ['10.0.0.1', '10.0.0.2']);
    const [elsewhere] = only([service({})], [slice([inZone('10.0.0.2', 'b')])]);
    assert.deepEqual(ips(elsewhere?.internal ?? []), ['10.0.0.2']);
    const onNode = (ip: string, node: string) => ({ addresses: [ip], hints: { forNodes: [{ name: node }] } });
    const [own] = only([service({})], [slice([onNode('10.0.0.1', 'there'), onNode('10.0.0.2', 'here')])]);
    assert.deepEqual(ips(own?.internal ?? []), ['10.0.0.2']);
  });

  it('omit headless and ExternalName services, and services of another proxy', () => {
    assert.deepEqual(
      only(
        [
          service({ clusterIPs: ['None'] }),
          service({ type: 'ExternalName', clusterIPs: undefined }),
          {
            ...service({}),
            metadata: { name: 'x', namespace: 'y', labels: { 'service.kubernetes.io/service-proxy-name': 'z' } },
          },
        ],
        [],
      ),
      [],
    );
  });

  it('have the addresses and endpoints of each family', () => {
    const both = service({ clusterIPs: ['10.96.0.7', 'fd00::7'], externalIPs: ['192.0.2.9', '2001:db8::9'] });
    const slices = [slice([{ addresses: ['10.0.0.1'] }]), slice([{ addresses: ['fd01::1'] }], { addressType: 'IPv6' })];
    const [v6] = only([both], slices, 'IPv6');
    assert.deepEqual(
      [v6?.clusterIp, ips(v6?.internal ?? []), v6?.externalIps],
      ['fd00::7', ['fd01::1'], ['2001:db8::9']],
    );
  });

  it('have health check ports with the number of local endpoints', () => {
    const balanced = service({ type: 'LoadBalancer', externalTrafficPolicy: 'Local', healthCheckNodePort: 31_000 });
    const slices = [
      slice([
        { addresses: ['10.0.0.1'], nodeName: 'here' },
        { addresses: ['10.0.0.2'], nodeName: 'there' },
      ]),
    ];
    assert.deepEqual(
      [balanced, service({})].map((each) => healthCheckPort(each, () => slices, PLACE)),
      [{ service: { namespace: 'shop', name: 'web' }, port: 31_000, localEndpoints: 1 }, undefined],
    );
  });

  it('admit a host to the load balancer by its own address there, if the ranges contain the host', () => {
    const balanced = {
      ...service({ type: 'LoadBalancer', loadBalancerSourceRanges: ['192.0.2.0/24'] }),
      status: { loadBalancer: { ingress: [{ ip: '203.0.113.5' }] } },
    } as unknown as Service;
    const ranges = (nodeIps: readonly string[]) => only([balanced], [], 'IPv4', { ...PLACE, nodeIps })[0]?.sourceRanges;
    assert.deepEqual(ranges(['192.0.2.1']), ['192.0.2.0/24', '203.0.113.5/32']);
    assert.deepEqual(ranges(['198.51.100.1']), ['192.0.2.0/24']);
  });

  it('are reached by an address of the node behind its external address', () => {
    const balanced = {
      ...service({ type: 'LoadBalancer' }),
      status: { loadBalancer: { ingress: [{ ip: '203.0.113.5' }] } },
    } as unknown as Service;
    const ips = (externalIps: readonly string[]) =>
      only([balanced], [], 'IPv4', { ...PLACE, nodeIps: ['192.0.2.1'], externalIps })[0]?.loadBalancerIps;
    assert.deepEqual(ips(['203.0.113.5']), ['203.0.113.5', '192.0.2.1']);
    assert.deepEqual(ips(['203.0.113.6']), ['203.0.113.5']);
  });

  it('are answered at the own addresses of a node alone where the nodes are the load balancer', () => {
    const plain = service({ type: 'LoadBalancer' });
    const status = { loadBalancer: { ingress: [{ ip: '192.0.2.1' }, { ip: '192.0.2.2' }, { ip: '8.8.8.8' }] } };
    const annotations = { 'orchlet.local/service-lb': 'true' };
    const served = { ...plain, metadata: { ...plain.metadata, annotations }, status } as unknown as Service;
    const ips = (one: Service) => only([one], [], 'IPv4', { ...PLACE, nodeIps: ['192.0.2.1'] })[0]?.loadBalancerIps;
    assert.deepEqual(ips(served), ['192.0.2.1']);
    const ofOthers = { ...plain, status } as unknown as Service;
    assert.deepEqual(ips(ofOthers), ['192.0.2.1', '192.0.2.2', '8.8.8.8']);
  });

  it('use endpoints of the whole cluster for traffic of the node itself, whatever the policies', () => {
    const slices = [
      slice([
        { addresses: ['10.0.0.1'], nodeName: 'here' },
        { addresses: ['10.0.0.2'], nodeName: 'there' },
      ]),
    ];
    const [port] = only([service({ externalTrafficPolicy: 'Local', internalTrafficPolicy: 'Local' })], slices);
    assert.deepEqual(ips(port?.cluster ?? []), ['10.0.0.1', '10.0.0.2']);
  });

  it('leave out what no rule can express', () => {
    const ports = [
      { name: 'a', port: 80, protocol: 'tcp -j ACCEPT' },
      { name: 'b', port: '80 }; flush ruleset', protocol: 'TCP' },
      { name: 'c', port: 80, protocol: 'TCP', nodePort: 70_000 },
    ];
    const hostile = service({
      ports,
      sessionAffinity: 'ClientIP',
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 1e99 } },
    });
    const endpoints = slice([{ addresses: ['10.0.0.1'] }], { ports: [{ name: 'c', port: '1; drop' }] });
    const found = only([hostile], [endpoints]);
    assert.deepEqual(
      found.map(({ id, nodePort, internal, affinitySeconds }) => ({ id, nodePort, internal, affinitySeconds })),
      [{ id: 'shop/web:c', nodePort: 0, internal: [], affinitySeconds: 86_400 }],
    );
  });
});
