import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { EndpointSlice, Node, Pod, Service } from '../../../../api/kinds/kinds.ts';
import { endpointSlices, nodes, pods, services } from '../../../../api/client/resources.ts';
import { runEndpointSlices } from '../../../../controlplane/controllers/endpoints/endpoint-slices.ts';
import type { Endpoint, EndpointGroup } from '../../../../controlplane/controllers/endpoints/slice-core.ts';
import { withTopologyHints, zoneShares } from '../../../../controlplane/controllers/endpoints/topology-hints.ts';
import { controllerTest } from '../../../fakes/fake-controllers.ts';

const node = (name: string, zone: string, cpu = '4', labels: object = {}): Node =>
  ({
    metadata: { name, labels: { ...(zone === '' ? {} : { 'topology.kubernetes.io/zone': zone }), ...labels } },
    status: { allocatable: { cpu }, conditions: [{ type: 'Ready', status: 'True' }] },
  }) as unknown as Node;

const endpoint = (name: string, zone: string, ready = true): Endpoint => ({
  addresses: [name],
  conditions: { ready },
  targetRef: { kind: 'Pod', uid: name },
  ...(zone === '' ? {} : { zone }),
});

const group = (...endpoints: Endpoint[]): EndpointGroup[] => [{ addressType: 'IPv4', ports: [], endpoints }];

const EVEN = new Map([
  ['a', 0.5],
  ['b', 0.5],
]);

const zonesOf = (groups: readonly EndpointGroup[]): (string | undefined)[] =>
  groups.flatMap(({ endpoints }) => endpoints.map(({ hints }) => hints?.forZones?.[0]?.name));

it('zones share by the CPUs of their ready nodes, without control planes, if each node has a zone and CPUs', () => {
  const control = node('c', 'c', '4', { 'node-role.kubernetes.io/control-plane': '' });
  assert.deepEqual(
    zoneShares([node('a', 'a', '3'), node('b', 'b', '1'), control]),
    new Map([
      ['a', 0.75],
      ['b', 0.25],
    ]),
  );
  assert.equal(zoneShares([node('a', 'a'), node('b', '')]), undefined);
  assert.equal(zoneShares([node('a', 'a'), node('b', 'b', '0')]), undefined);
  assert.equal(zoneShares([node('a', 'a'), node('a2', 'a')]), undefined);
});

it('endpoints are for their own zone, and some for a zone that lacks its share', () => {
  const own = withTopologyHints(group(endpoint('1', 'a'), endpoint('2', 'b')), [], EVEN);
  assert.deepEqual([zonesOf(own.groups), own.problem], [['a', 'b'], undefined]);
  const four = ['1', '2', '3', '4'].map((name) => endpoint(name, 'a'));
  assert.deepEqual(zonesOf(withTopologyHints(group(...four), [], EVEN).groups).toSorted(), ['a', 'a', 'b', 'b']);
});

it('there are no hints with too few endpoints, too few facts or an endpoint without a zone', () => {
  const problem = (endpoints: Endpoint[], shares: typeof EVEN | undefined): string | undefined => {
    const { groups, problem: text } = withTopologyHints(group(...endpoints), [], shares);
    assert.ok(zonesOf(groups).every((zone) => zone === undefined));
    return text;
  };
  assert.equal(problem([endpoint('1', 'a')], EVEN), 'Insufficient number of endpoints (1 endpoints, 2 zones)');
  assert.match(
    problem([endpoint('1', 'a')], undefined) ?? '',
    /^Insufficient Node information: allocatable CPU or zone/,
  );
  assert.equal(
    problem([endpoint('1', 'a'), endpoint('2', '')], EVEN),
    'One or more endpoints do not have a zone specified',
  );
  const uneven = new Map([
    ['a', 0.9],
    ['b', 0.1],
  ]);
  assert.match(
    problem([endpoint('1', 'a'), endpoint('2', 'b'), endpoint('3', 'b', false)], uneven) ?? '',
    /^Unable to allocate minimum required endpoints to each zone .* \(2 endpoints, 2 zones\)$/,
  );
});

it('hints that are good enough stay when shares change a little', () => {
  const members = ['1', '2', '3', '4'].map((name) => endpoint(name, name < '3' ? 'a' : 'b'));
  const before = withTopologyHints(group(...members), [], EVEN).groups;
  const slice = { addressType: 'IPv4', endpoints: before[0]?.endpoints } as unknown as EndpointSlice;
  const shares = new Map([
    ['a', 0.55],
    ['b', 0.45],
  ]);
  assert.deepEqual(withTopologyHints(group(...members), [slice], shares).groups, before);
});

it('a service with the annotation gets hints, with events when they begin and end', async () => {
  const service = {
    metadata: { name: 's', namespace: 'n', annotations: { 'service.kubernetes.io/topology-mode': 'Auto' } },
    spec: { selector: { app: 'a' }, ipFamilies: ['IPv4'], clusterIP: '10.0.0.1', ports: [{ port: 80 }] },
  } as unknown as Service;
  const pod = (name: string): Pod =>
    ({
      metadata: { name, namespace: 'n', uid: name, labels: { app: 'a' } },
      spec: { nodeName: name, containers: [] },
      status: { phase: 'Running', podIP: `10.1.0.${name}`, conditions: [{ type: 'Ready', status: 'True' }] },
    }) as unknown as Pod;
  const t = controllerTest({
    objects: [
      [services, service],
      [nodes, node('1', 'a')],
      [nodes, node('2', 'b')],
      [pods, pod('1')],
      [pods, pod('2')],
    ],
  });
  await t.start(runEndpointSlices);
  await t.advance(2000);
  const hints = (): unknown =>
    t.client
      .peekAll(endpointSlices)
      .flatMap((slice) => (slice.endpoints ?? []).map((one) => one.hints?.forZones?.[0]?.name))
      .toSorted();
  assert.deepEqual(hints(), ['a', 'b']);
  const enabled = 'Normal TopologyAwareHintsEnabled Topology Aware Hints has been enabled, addressType: IPv4';
  assert.ok(t.events().includes(enabled), t.events().join('\n'));
  await t.client.patch(services, 'n', 's', { type: 'merge', body: { metadata: { annotations: null } } });
  await t.advance(2000);
  assert.deepEqual(hints(), [undefined, undefined]);
  const disabled = 'Warning TopologyAwareHintsDisabled Topology Aware Hints has been disabled, addressType: IPv4';
  assert.ok(t.events().includes(disabled), t.events().join('\n'));
  await t.stop();
});
