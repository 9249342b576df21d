import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { IPAddress, ServiceCIDR } from '../../../../api/kinds/kinds.ts';
import { ipAddresses, serviceCIDRs } from '../../../../api/client/resources.ts';
import { mayBeDeleted, runServiceCidrs } from '../../../../controlplane/controllers/service-cidrs/service-cidrs.ts';
import { controllerTest } from '../../../fakes/fake-controllers.ts';

const FINALIZER = 'networking.k8s.io/service-cidr-finalizer';
const range = (name: string, ...cidrs: string[]): ServiceCIDR => ({ metadata: { name }, spec: { cidrs } });
const leaving = (one: ServiceCIDR): ServiceCIDR => ({
  ...one,
  metadata: { ...one.metadata, deletionTimestamp: '2026-01-01T00:00:00Z' },
});
const address = (name: string, managedBy = 'ipallocator.k8s.io'): IPAddress => ({
  metadata: { name, labels: { 'ipaddress.kubernetes.io/managed-by': managedBy } },
  spec: { parentRef: { resource: 'services', namespace: 'n', name: 's' } },
});
const readyOf = (one: ServiceCIDR | undefined): string | undefined =>
  one?.status?.conditions?.find(({ type }) => type === 'Ready')?.status;

test('a range may go when each address in use is in another one', () => {
  const own = leaving(range('own', '10.1.0.0/24', 'fd01::/112'));
  const cases: readonly [string, readonly ServiceCIDR[], readonly IPAddress[], boolean][] = [
    ['nothing is in use', [], [], true],
    ['an address is in use', [], [address('10.1.0.9')], false],
    ['one of the second family is in use', [range('a', '10.0.0.0/8')], [address('fd01::9')], false],
    ['one of another range is in use', [], [address('10.2.0.9')], true],
    ['an address that services do not have', [], [address('10.1.0.9', 'example.com')], true],
    ['another range has it too', [range('a', '10.1.0.0/28')], [address('10.1.0.9')], true],
    ['another range has some', [range('a', '10.1.0.0/28')], [address('10.1.0.9'), address('10.1.0.99')], false],
    ['larger ranges have all', [range('a', '10.0.0.0/8'), range('b', 'fd01::/64')], [address('10.1.0.9')], true],
    ['the other one goes as well', [leaving(range('a', '10.1.0.0/24'))], [address('10.1.0.9')], false],
  ];
  for (const [name, others, addresses, expected] of cases)
    assert.equal(
      mayBeDeleted(own, [own, ...others], () => addresses),
      expected,
      name,
    );
});

test('a range is ready and has a finalizer until it is deleted and none of its addresses is in use', async () => {
  const t = controllerTest({
    objects: [
      [serviceCIDRs, range('more', '10.1.0.0/24')],
      [ipAddresses, address('10.1.0.9')],
    ],
  });
  await t.start(runServiceCidrs);
  await t.advance(100);
  const peek = (): ServiceCIDR | undefined => t.client.peek(serviceCIDRs, '', 'more');
  assert.deepEqual(peek()?.metadata.finalizers, [FINALIZER]);
  assert.equal(readyOf(peek()), 'True');
  // kube-controller-manager applies it too, so that each of the two may change what the other one has written.
  const [applied] = t.client.writes('patch');
  assert.deepEqual([applied?.patchType, applied?.subresource], ['apply', 'status']);
  await t.client.delete(serviceCIDRs, '', 'more');
  await t.advance(30_000);
  assert.equal(readyOf(peek()), 'False');
  await t.client.delete(ipAddresses, '', '10.1.0.9');
  await t.advance(1000);
  assert.equal(peek(), undefined);
  await t.stop();
});

test('a deleted range stays until every API server knows of its deletion', async () => {
  const t = controllerTest({ objects: [[serviceCIDRs, range('more', '10.1.0.0/24')]] });
  await t.start(runServiceCidrs);
  await t.advance(100);
  await t.client.delete(serviceCIDRs, '', 'more');
  await t.advance(8000);
  assert.ok(t.client.peek(serviceCIDRs, '', 'more'));
  await t.advance(4000);
  assert.equal(t.client.peek(serviceCIDRs, '', 'more'), undefined);
  await t.stop();
});
