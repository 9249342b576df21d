import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Endpoints, EndpointSlice, Node, Pod, Service } from '../../../../api/kinds/kinds.ts';
import { endpoints, endpointSlices, nodes, pods, services } from '../../../../api/client/resources.ts';
import { runEndpointSlices } from '../../../../controlplane/controllers/endpoints/endpoint-slices.ts';
import { computeSubsets, runEndpoints, truncate } from '../../../../controlplane/controllers/endpoints/endpoints.ts';
import { groupEndpoints, planSlices } from '../../../../controlplane/controllers/endpoints/slice-core.ts';
import {
  groupsOf,
  isMirrored,
  runSliceMirroring,
} from '../../../../controlplane/controllers/endpoints/slice-mirroring.ts';
import { controllerTest } from '../../../fakes/fake-controllers.ts';
import { assertLinearTime } from '../../../fuzz/growth.ts';

const service = (spec: Partial<NonNullable<Service['spec']>> = {}): Service => ({
  metadata: { name: 's', namespace: 'n', labels: { team: 'x' } },
  spec: {
    selector: { app: 'a' },
    clusterIP: '10.0.0.1',
    ipFamilies: ['IPv4'],
    ports: [{ name: 'http', port: 80, targetPort: 'web', protocol: 'TCP' }],
    ...spec,
  },
});

const pod = (name: string, ip: string, { ready = true, port = 8080 } = {}): Pod => ({
  metadata: { name, namespace: 'n', uid: `uid-${name}`, labels: { app: 'a' } },
  spec: {
    nodeName: 'node',
    containers: [{ name: 'c', ports: [{ name: 'web', containerPort: port, protocol: 'TCP' }] }],
  },
  status: {
    phase: 'Running',
    podIP: ip,
    podIPs: [{ ip }],
    conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }],
  },
});

const NODE: Node = { metadata: { name: 'node', labels: { 'topology.kubernetes.io/zone': 'z' } } };

describe('endpoints of a service', () => {
  test('leave out the addresses that a node gives its pods and no endpoint may have, which would keep all others from being written', () => {
    const all = [
      pod('good', '10.1.0.1'),
      ...['127.0.0.1', '0.0.0.0', '169.254.169.254', '224.0.0.1', '127.1.2.3'].map((ip, at) => pod(`bad${at}`, ip)),
      pod('last', '10.1.0.2'),
    ];
    const [group] = groupEndpoints(service(), all, () => NODE);
    assert.deepEqual(
      group?.endpoints.map(({ addresses }) => addresses),
      [['10.1.0.1'], ['10.1.0.2']],
    );
    const [subset] = computeSubsets(service(), all);
    assert.deepEqual(
      subset?.addresses?.map(({ ip }) => ip),
      ['10.1.0.1', '10.1.0.2'],
    );
    for (const ip of ['::1', '::', '::ffff:10.1.0.1', 'fe80::1', 'ff02::1', '::ffff:127.0.0.1'])
      assert.deepEqual(
        groupEndpoints(service({ ipFamilies: ['IPv4', 'IPv6'] }), [pod('bad', ip)], () => NODE),
        [],
        ip,
      );
  });

  test('take time that grows with the ports of the service and of the pod', async () => {
    const run = (size: number): void => {
      const names = Array.from({ length: size }, (_, at) => `p${at}`);
      const wide = service({
        ports: names.map((name, at) => ({ name, port: at + 1, targetPort: name, protocol: 'TCP' })),
      });
      const one = pod('a', '10.1.0.1');
      const ports = names.map((name, at) => ({ name, containerPort: at + 1, protocol: 'TCP' }));
      const crowded = { ...one, spec: { ...one.spec, containers: [{ name: 'c', ports }] } };
      const [subset] = computeSubsets(wide, [crowded]);
      const [group] = groupEndpoints(wide, [crowded], () => NODE);
      assert.equal(subset?.ports?.length, size);
      assert.equal(group?.ports.at(-1)?.port, size);
    };
    await assertLinearTime(run, { minBytes: 1_000, maxBytes: 16_000, noticeableMs: 100 });
  });

  test('distinguish ready pods from others, by the port that the name has in each pod', () => {
    const members = [
      pod('a', '10.1.0.1'),
      pod('b', '10.1.0.2', { ready: false }),
      pod('c', '10.1.0.3', { port: 9090 }),
    ];
    const subsets = computeSubsets(service(), members);
    assert.deepEqual(
      subsets.map(({ addresses, notReadyAddresses, ports }) => [
        addresses?.map(({ ip }) => ip),
        notReadyAddresses?.map(({ ip }) => ip),
        ports?.map(({ port }) => port),
      ]),
      [
        [['10.1.0.1'], ['10.1.0.2'], [8080]],
        [['10.1.0.3'], undefined, [9090]],
      ],
    );
  });
  test('are all ready if the service publishes addresses that are not ready', () => {
    const [subset] = computeSubsets(service({ publishNotReadyAddresses: true }), [
      pod('b', '10.1.0.2', { ready: false }),
    ]);
    assert.equal(subset?.addresses?.length, 1);
  });
  test('hold a thousand, ready ones before others', () => {
    const address = (at: number) => ({ ip: `10.1.${at >> 8}.${at & 255}` });
    const all = Array.from({ length: 900 }, (_, at) => address(at));
    const { subsets, truncated } = truncate([
      { notReadyAddresses: all, ports: [] },
      { addresses: all, ports: [] },
    ]);
    assert.equal(truncated, true);
    assert.deepEqual(
      subsets.map((subset) => [subset.addresses?.length, subset.notReadyAddresses?.length]),
      [
        [undefined, 100],
        [900, undefined],
      ],
    );
  });
  test('follow its pods, and go with it', async () => {
    const t = controllerTest({
      objects: [
        [services, service()],
        [pods, pod('a', '10.1.0.1')],
      ],
    });
    await t.start(runEndpoints);
    await t.advance(2000);
    const addresses = () => t.client.peek(endpoints, 'n', 's')?.subsets?.[0]?.addresses?.map(({ ip }) => ip);
    assert.deepEqual(addresses(), ['10.1.0.1']);
    t.client.seed(pods, pod('b', '10.1.0.2'));
    await t.advance(2000);
    assert.deepEqual(addresses(), ['10.1.0.1', '10.1.0.2']);
    await t.client.delete(services, 'n', 's');
    await t.advance(2000);
    assert.equal(t.client.peek(endpoints, 'n', 's'), undefined);
    await t.stop();
  });
});

describe('slices of a service', () => {
  const slice = (name: string, addresses: string[]): EndpointSlice => ({
    metadata: { name, namespace: 'n' },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints: groupEndpoints(
      service(),
      addresses.map((ip) => pod(ip, ip)),
      () => NODE,
    ).flatMap((group) => [...group.endpoints]),
  });
  const plan = (existing: EndpointSlice[], members: string[], maxPerSlice = 2) =>
    planSlices({
      existing,
      groups: groupEndpoints(
        service(),
        members.map((ip) => pod(ip, ip)),
        () => NODE,
      ),
      placeholders: [],
      maxPerSlice,
      isStale: () => false,
    });

  test('are as few as hold all', () => {
    const { create } = plan([], ['10.1.0.1', '10.1.0.2', '10.1.0.3']);
    assert.deepEqual(
      create.map((group) => group.endpoints.length),
      [2, 1],
    );
  });
  test('that are right are not written', () => {
    const { create, update, remove } = plan([slice('x', ['10.1.0.1'])], ['10.1.0.1']);
    assert.deepEqual([create.length, update.length, remove.length], [0, 0, 0]);
  });
  test('keep their endpoints, and get new ones if there is room', () => {
    const { create, update } = plan(
      [slice('x', ['10.1.0.1', '10.1.0.2']), slice('y', ['10.1.0.3'])],
      ['10.1.0.1', '10.1.0.2', '10.1.0.3', '10.1.0.4'],
    );
    assert.deepEqual([create.length, update.map((one) => one.slice.metadata.name)], [0, ['y']]);
  });
  test('that are empty go', () => {
    const { remove } = plan([slice('x', ['10.1.0.1']), slice('y', ['10.1.0.9'])], ['10.1.0.1']);
    assert.deepEqual(
      remove.map(({ metadata }) => metadata.name),
      ['y'],
    );
  });
  test('are kept by the controller, one for a service without pods', async () => {
    const t = controllerTest({
      objects: [
        [services, service()],
        [nodes, NODE],
      ],
    });
    await t.start(runEndpointSlices);
    await t.advance(2000);
    assert.deepEqual(
      t.client.peekAll(endpointSlices).map((one) => one.endpoints),
      [[]],
    );
    t.client.seed(pods, pod('a', '10.1.0.1'));
    await t.advance(2000);
    const [only, ...others] = t.client.peekAll(endpointSlices);
    assert.deepEqual([only?.endpoints?.map((one) => one.addresses), others.length], [[['10.1.0.1']], 0]);
    assert.equal(only?.metadata.labels?.['kubernetes.io/service-name'], 's');
    await t.stop();
  });
  test('omit pods whose node does not exist, with an event, until it does', async () => {
    const t = controllerTest({
      objects: [
        [services, service()],
        [pods, pod('a', '10.1.0.1')],
      ],
    });
    await t.start(runEndpointSlices);
    await t.advance(200);
    const addresses = (): unknown =>
      t.client.peekAll(endpointSlices).flatMap((one) => (one.endpoints ?? []).flatMap((each) => each.addresses));
    assert.deepEqual(addresses(), []);
    const what = 'Error updating Endpoint Slices for Service n/s: skipping Pod a for Service n/s: Node node Not Found';
    assert.ok(t.events()[0]?.startsWith(`Warning FailedToUpdateEndpointSlices ${what}`));
    t.client.seed(nodes, NODE);
    await t.advance(10_000);
    assert.deepEqual(addresses(), ['10.1.0.1']);
    await t.stop();
  });
  test('of an earlier service of that name are not reused', async () => {
    const owner = { apiVersion: 'v1', kind: 'Service', name: 's', uid: 'earlier', controller: true };
    const labels = {
      'kubernetes.io/service-name': 's',
      'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
    };
    const metadata = { name: 'old', namespace: 'n', labels, ownerReferences: [owner] };
    const t = controllerTest({
      objects: [
        [services, { ...service(), metadata: { ...service().metadata, uid: 'now' } }],
        [nodes, NODE],
        [pods, pod('a', '10.1.0.1')],
        [endpointSlices, { ...slice('old', []), metadata } as EndpointSlice],
      ],
    });
    await t.start(runEndpointSlices);
    await t.advance(2000);
    const left = t.client.peekAll(endpointSlices);
    assert.deepEqual([left.length, left[0]?.metadata.ownerReferences?.[0]?.uid], [1, 'now']);
    await t.stop();
  });
  test('have hints for the zone, and for the node, if the service prefers near endpoints', () => {
    const hintsOf = (trafficDistribution: string, ready = true): unknown =>
      groupEndpoints(service({ trafficDistribution }), [pod('a', '10.1.0.1', { ready })], () => NODE)[0]?.endpoints[0]
        ?.hints;
    const zone = { forZones: [{ name: 'z' }] };
    assert.deepEqual(hintsOf('PreferClose'), zone);
    assert.deepEqual(hintsOf('PreferSameZone'), zone);
    assert.deepEqual(hintsOf('PreferSameNode'), { ...zone, forNodes: [{ name: 'node' }] });
    assert.equal(hintsOf('PreferSameNode', false), undefined);
    assert.equal(groupEndpoints(service(), [pod('a', '10.1.0.1')], () => NODE)[0]?.endpoints[0]?.hints, undefined);
  });
});

describe('endpoints that are kept by hand', () => {
  const { selector: _, ...spec } = service().spec ?? {};
  const plain: Service = { ...service(), spec };
  const byHand: Endpoints = {
    metadata: { name: 's', namespace: 'n', labels: { a: 'b' } },
    subsets: [
      {
        addresses: [{ ip: '192.0.2.1' }, { ip: '2001:db8::1' }],
        notReadyAddresses: [{ ip: '192.0.2.2' }],
        ports: [{ name: 'db', port: 5432, protocol: 'TCP' }],
      },
    ],
  };

  test('are mirrored for services without a selector, unless they have the label to skip that', () => {
    assert.equal(isMirrored(byHand, plain), true);
    assert.equal(isMirrored(byHand, service()), false);
    assert.equal(isMirrored(byHand, undefined), false);
    const labels = { 'endpointslice.kubernetes.io/skip-mirror': 'true' };
    assert.equal(isMirrored({ ...byHand, metadata: { ...byHand.metadata, labels } }, plain), false);
  });
  test('become groups by family and ports', () => {
    assert.deepEqual(
      groupsOf(byHand.subsets ?? [], 1000).map(({ addressType, endpoints: members }) => [
        addressType,
        members.map(({ addresses, conditions }) => [addresses[0], conditions?.ready]),
      ]),
      [
        [
          'IPv4',
          [
            ['192.0.2.1', true],
            ['192.0.2.2', false],
          ],
        ],
        ['IPv6', [['2001:db8::1', true]]],
      ],
    );
  });
  test('have slices as long as they are there', async () => {
    const t = controllerTest({
      objects: [
        [services, plain],
        [endpoints, byHand],
      ],
    });
    await t.start(runSliceMirroring);
    await t.advance(2000);
    const made = t.client.peekAll(endpointSlices);
    assert.deepEqual(made.map(({ addressType }) => addressType).toSorted(), ['IPv4', 'IPv6']);
    assert.equal(
      made[0]?.metadata.labels?.['endpointslice.kubernetes.io/managed-by'],
      'endpointslicemirroring-controller.k8s.io',
    );
    await t.client.patch(endpoints, 'n', 's', {
      type: 'merge',
      body: {
        subsets: [{ addresses: [{ ip: '192.0.2.7' }], ports: byHand.subsets?.[0]?.ports }],
      },
    });
    await t.advance(2000);
    assert.deepEqual(
      t.client.peekAll(endpointSlices).map((one) => one.endpoints?.map(({ addresses }) => addresses[0])),
      [['192.0.2.7']],
    );
    await t.client.patch(services, 'n', 's', { type: 'merge', body: { spec: { selector: { app: 'a' } } } });
    await t.advance(2000);
    assert.equal(t.client.peekAll(endpointSlices).length, 0);
    await t.stop();
  });
  test('have no slices for addresses beyond the limit of a subset, which an event says', async () => {
    const t = controllerTest({
      objects: [
        [services, plain],
        [endpoints, byHand],
      ],
      options: { mirroringMaxEndpointsPerSubset: 2 },
    });
    await t.start(runSliceMirroring);
    await t.advance(2000);
    const limit =
      'A max of 2 addresses can be mirrored to EndpointSlices per Endpoints subset. 1 addresses were skipped';
    assert.ok(t.events().some((event) => event.startsWith(`Warning TooManyAddressesToMirror ${limit}`)));
    await t.stop();
  });
});
