import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endpointKinds } from '../../../../../../controlplane/registry/kinds/core/endpoints.ts';
import { networkingKinds } from '../../../../../../controlplane/registry/kinds/networking/networking.ts';
import { ipAddressColumns } from '../../../../../../controlplane/registry/kinds/networking/columns.ts';
import { rulesOf, type Draft } from '../strategy-fixture.ts';

const GROUP = 'networking.k8s.io';
const ingresses = rulesOf(networkingKinds, GROUP, 'ingresses');
const classes = rulesOf(networkingKinds, GROUP, 'ingressclasses');
const policies = rulesOf(networkingKinds, GROUP, 'networkpolicies');
const ranges = rulesOf(networkingKinds, GROUP, 'servicecidrs');
const slices = rulesOf(endpointKinds, 'discovery.k8s.io', 'endpointslices');

const backend = { service: { name: 's', port: { number: 80 } } };
const withPath = (path: object): Draft => ({ spec: { rules: [{ http: { paths: [{ backend, ...path }] } }] } });

const PATHS: readonly (readonly [string, object, string | undefined])[] = [
  ['a prefix is a path', { path: '/a', pathType: 'Prefix' }, undefined],
  ['the type is required', { path: '/a' }, 'pathType: Required value: pathType must be specified'],
  [
    'a path begins with a slash',
    { path: 'a', pathType: 'Exact' },
    'path: Invalid value: "a": must be an absolute path',
  ],
  [
    'a path does not end in a parent',
    { path: '/a/..', pathType: 'Exact' },
    'path: Invalid value: "/a/..": cannot end with \'/..\'',
  ],
  ['what implementations make of a path is theirs', { path: '/a//b', pathType: 'ImplementationSpecific' }, undefined],
];

for (const [what, path, error] of PATHS) {
  test(`ingress: ${what}`, () => {
    const wanted = error === undefined ? [] : [`spec.rules[0].http.paths[0].${error}`];
    assert.deepEqual(ingresses.create(withPath(path)).errors, wanted);
  });
}

test('an ingress keeps a secret name that would be refused today', () => {
  const spec = { defaultBackend: backend, tls: [{ secretName: 'Bad_Name' }] };
  assert.equal(ingresses.create({ spec }).errors.length, 1);
  assert.deepEqual(ingresses.update({ spec }, { spec: { ...spec, ingressClassName: 'x' } }).errors, []);
});

test('the status of an ingress is not written through the ingress', () => {
  const spec = { defaultBackend: backend };
  const { object, newGeneration } = ingresses.update(
    { spec },
    { spec, status: { loadBalancer: { ingress: [{ ip: 'x' }] } } },
  );
  assert.equal(object['status'], undefined);
  assert.equal(newGeneration, false);
});

test('parameters of a class are of the cluster unless they say otherwise', () => {
  const spec = { controller: 'example.com/a', parameters: { kind: 'K', name: 'n' } };
  const { object, errors } = classes.create({ spec });
  assert.deepEqual(errors, []);
  assert.deepEqual((object['spec'] as { parameters: object }).parameters, { kind: 'K', name: 'n', scope: 'Cluster' });
});

test('a network policy has the type Egress only if it has egress rules', () => {
  const types = (spec: object): unknown =>
    (policies.create({ spec }).object['spec'] as { policyTypes: unknown }).policyTypes;
  assert.deepEqual(types({}), ['Ingress']);
  assert.deepEqual(types({ egress: [] }), ['Ingress']);
  assert.deepEqual(types({ egress: [{}] }), ['Ingress', 'Egress']);
});

test('a network policy may keep a block in a non-canonical form, but not get a new one', () => {
  const of = (cidr: string): Draft => ({ spec: { ingress: [{ from: [{ ipBlock: { cidr } }] }] } });
  assert.deepEqual(policies.create(of('10.0.0.1/8')).errors, [
    'spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length',
  ]);
  assert.deepEqual(policies.update(of('10.0.0.1/8'), of('10.0.0.1/8')).errors, []);
});

test('unusual forms of addresses are warned of', () => {
  const { warnings } = policies.create({ spec: { egress: [{ to: [{ ipBlock: { cidr: '2001:DB8::/64' } }] }] } });
  assert.deepEqual(warnings, [
    'spec.egress[0].to[0].ipBlock.cidr: IPv6 CIDR value "2001:DB8::/64" should be in RFC 5952 canonical format ("2001:db8::/64")',
  ]);
});

test('a range of service addresses can get a second family and nothing else', () => {
  const of = (...cidrs: string[]): Draft => ({ spec: { cidrs } });
  assert.deepEqual(ranges.update(of('10.0.0.0/24'), of('10.0.0.0/24', '2001:db8::/64')).errors, []);
  assert.deepEqual(ranges.update(of('10.0.0.0/24'), of('10.0.1.0/24')).errors, [
    'spec.cidrs[0]: Invalid value: "10.0.1.0/24": field is immutable',
  ]);
  assert.deepEqual(ranges.update(of('10.0.0.0/24', '2001:db8::/64'), of('10.0.0.0/24')).errors, [
    'spec.cidrs: Invalid value: ["10.0.0.0/24"]: field is immutable',
  ]);
});

test('addresses of a slice are of its family', () => {
  const { errors } = slices.create({ addressType: 'IPv4', endpoints: [{ addresses: ['2001:db8::1'] }] });
  assert.deepEqual(errors, ['endpoints[0].addresses: Invalid value: "2001:db8::1": must be an IPv4 address']);
});

test('a slice of names is valid and warned of', () => {
  const { errors, warnings } = slices.create({ addressType: 'FQDN', endpoints: [{ addresses: ['a.example'] }] });
  assert.deepEqual(errors, []);
  assert.deepEqual(warnings, ['spec.addressType: FQDN endpoints are deprecated']);
});

test('labels of a slice count as a change of what it says', () => {
  const slice = { addressType: 'IPv4', endpoints: [], ports: [] };
  assert.equal(slices.update(slice, { ...slice, metadata: { labels: { a: 'b' } } }).newGeneration, true);
  assert.equal(slices.update(slice, { ...slice, metadata: { annotations: { a: 'b' } } }).newGeneration, false);
});

test('an address of a service has a cell for its age, without a column', () => {
  const address = { metadata: { name: 'a' }, spec: { parentRef: { resource: 'services', namespace: 'n', name: 's' } } };
  assert.equal(ipAddressColumns.columns.length, 2);
  assert.deepEqual(ipAddressColumns.cells(address), ['a', 'services/n/s', '<unknown>']);
});

test('the status of a ServiceCIDR is written by its own path alone', () => {
  const spec = { cidrs: ['10.0.0.0/24'] };
  const status = { conditions: [{ type: 'Ready', status: 'True' }] };
  assert.equal(ranges.create({ spec, status }).object['status'], undefined);
  assert.equal(ranges.update({ spec }, { spec, status }).object['status'], undefined);
});
