import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { IPAddress, Service, ServiceCIDR } from '../../../../../api/kinds/kinds.ts';
import { ipAddresses, serviceCIDRs, services, type ResourceOf } from '../../../../../api/client/resources.ts';
import type { Resource } from '../../../../../api/client/client.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { aborted, type RunController } from '../../../../../controlplane/controllers/controller.ts';
import { ipAddressOf } from '../../../../../controlplane/registry/kinds/core/service-ip-addresses.ts';
import {
  keepServiceAddresses,
  type AddressState,
} from '../../../../../controlplane/controllers/cluster-objects/service-address-repair.ts';
import { controllerTest, type ControllerTest } from '../../../../fakes/fake-controllers.ts';

const CIDR = '10.96.0.0/16';
const range: ServiceCIDR = { metadata: { name: 'kubernetes' }, spec: { cidrs: [CIDR] } };
const service = (name: string, ...clusterIPs: string[]): Service => ({
  metadata: { name, namespace: 'n' },
  spec: { type: 'ClusterIP', clusterIP: clusterIPs[0] ?? '', clusterIPs },
});
const address = (name: string, of: string, labels?: Record<string, string>): IPAddress => {
  const made = ipAddressOf(name, service(of) as KubeObject) as IPAddress;
  return { ...made, metadata: { ...made.metadata, ...(labels === undefined ? {} : { labels }) } };
};

function repairing(objects: readonly (readonly [Resource, KubeObject])[]): ControllerTest & { run: RunController } {
  const t = controllerTest({ objects });
  const peek = <T extends KubeObject>(resource: ResourceOf<T>, namespace: string, name: string) =>
    t.client.peek(resource, namespace, name);
  const state = {
    service: (namespace: string, name: string) => peek(services, namespace, name),
    address: (name: string) => peek(ipAddresses, '', name),
    ranges: () => t.client.peekAll(serviceCIDRs),
  } as AddressState;
  const run: RunController = async ({ client, informers, clock, logger }, signal) => {
    const serviceClusterCidrs = [CIDR];
    const kept = keepServiceAddresses({ client: client.untyped, informers, clock, logger, state, serviceClusterCidrs });
    await aborted(signal);
    await kept.close();
  };
  return { ...t, run };
}

const shown = (t: ControllerTest): string[] =>
  t.client
    .peekAll(ipAddresses)
    .map(({ metadata, spec }) => `${metadata.name} ${spec?.parentRef?.name}`)
    .toSorted();

test('each address of a service is given its object at the start', async () => {
  const t = repairing([
    [serviceCIDRs, range],
    [services, service('a', '10.96.0.1')],
    [services, service('b', '10.96.0.2')],
    [services, service('headless', 'None')],
    [services, service('far', '192.0.2.1')],
    [ipAddresses, address('10.96.0.2', 'b')],
  ]);
  await t.start(t.run);
  await t.advance(100);
  assert.deepEqual(shown(t), ['10.96.0.1 a', '10.96.0.2 b']);
  assert.deepEqual(t.events().toSorted(), [
    'Warning ClusterIPNotAllocated Cluster IP [IPv4]: 10.96.0.1 is not allocated; repairing',
    'Warning ClusterIPOutOfRange Cluster IP [IPv4]: 192.0.2.1 is not within any configured Service CIDR; please recreate service',
  ]);
  await t.stop();
});

test('an object that is deleted or changed by hand is recreated', async () => {
  const t = repairing([
    [serviceCIDRs, range],
    [services, service('a', '10.96.0.1')],
    [services, service('b', '10.96.0.2')],
    [services, service('c', '10.96.0.3')],
    [ipAddresses, address('10.96.0.1', 'a')],
    [ipAddresses, address('10.96.0.2', 'a')],
    [ipAddresses, address('10.96.0.3', 'c', {})],
  ]);
  await t.start(t.run);
  await t.advance(1000);
  assert.deepEqual(shown(t), ['10.96.0.1 a', '10.96.0.2 b', '10.96.0.3 c']);
  const labels = t.client.peek(ipAddresses, '', '10.96.0.3')?.metadata.labels;
  assert.equal(labels?.['ipaddress.kubernetes.io/managed-by'], 'ipallocator.k8s.io');
  await t.client.delete(ipAddresses, '', '10.96.0.1');
  await t.advance(1000);
  assert.deepEqual(shown(t), ['10.96.0.1 a', '10.96.0.2 b', '10.96.0.3 c']);
  await t.stop();
});

test('an address that another server has repaired meanwhile is not removed', async () => {
  const t = repairing([
    [serviceCIDRs, range],
    [services, service('a', '10.96.0.1')],
    [ipAddresses, address('10.96.0.1', 'other')],
  ]);
  let isRaced = false;
  t.client.intercept((call) => {
    if (call.verb !== 'delete' || isRaced) return undefined;
    isRaced = true;
    t.client.seed(ipAddresses, address('10.96.0.1', 'a'));
    return undefined;
  });
  await t.start(t.run);
  await t.advance(60_000);
  assert.equal(isRaced, true);
  assert.deepEqual(shown(t), ['10.96.0.1 a']);
  assert.equal(t.client.calls.filter(({ verb, resource }) => verb === 'create' && resource === ipAddresses).length, 0);
  await t.stop();
});

test('two services with one address are reported, and both keep it', async () => {
  const t = repairing([
    [serviceCIDRs, range],
    [services, service('a', '10.96.0.1')],
    [services, service('b', '10.96.0.1')],
    [ipAddresses, address('10.96.0.1', 'a')],
  ]);
  await t.start(t.run);
  await t.advance(1000);
  assert.deepEqual(shown(t), ['10.96.0.1 a']);
  assert.match(t.events().join(), /ClusterIPAlreadyAllocated .*assigned to multiple services/);
  await t.stop();
});

test('an IPAddress without its service is deleted after some time, and one of another owner never', async () => {
  const t = repairing([
    [serviceCIDRs, range],
    [services, service('a', '10.96.0.1')],
    [ipAddresses, address('10.96.0.1', 'a')],
  ]);
  await t.start(t.run);
  await t.advance(100);
  await t.client.create(ipAddresses, '', address('10.96.0.5', 'gone'));
  await t.client.create(ipAddresses, '', address('10.96.0.6', 'gone', { own: 'true' }));
  await t.client.create(ipAddresses, '', address('10.96.0.7', 'a'));
  await t.advance(50_000);
  assert.deepEqual(shown(t), ['10.96.0.1 a', '10.96.0.5 gone', '10.96.0.6 gone']);
  await t.advance(15_000);
  assert.deepEqual(shown(t), ['10.96.0.1 a', '10.96.0.6 gone']);
  await t.stop();
});

test('the range of the flags is created again after a user deletes it', async () => {
  const t = repairing([]);
  await t.start(t.run);
  await t.advance(100);
  const ready = (): boolean | undefined =>
    t.client.peek(serviceCIDRs, '', 'kubernetes')?.status?.conditions?.some(({ status }) => status === 'True');
  assert.equal(ready(), true);
  await t.client.delete(serviceCIDRs, '', 'kubernetes');
  await t.advance(11_000);
  assert.equal(ready(), true);
  assert.deepEqual(t.client.peek(serviceCIDRs, '', 'kubernetes')?.spec?.cidrs, [CIDR]);
  await t.stop();
});
