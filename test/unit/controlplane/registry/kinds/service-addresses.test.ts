import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { systemClock } from '../../../../../api/machinery/clock.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { openMemoryStorage } from '../../../../../controlplane/storage/memory.ts';
import { stampRevision } from '../../../../../controlplane/storage/object-bytes.ts';
import { openFixture, refusal, type Fixture } from '../registry-fixture.ts';

const SERVICES = 'v1/services';
const ADDRESSES = 'networking.k8s.io/v1/ipaddresses';
const RANGES = 'networking.k8s.io/v1/servicecidrs';

const service = (name: string, spec: object = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name },
  spec: { ports: [{ port: 80 }], ...spec },
});
const range = (name: string, ...cidrs: string[]): KubeObject => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'ServiceCIDR',
  metadata: { name },
  spec: { cidrs },
});
const address = (name: string): KubeObject => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'IPAddress',
  metadata: { name },
  spec: { parentRef: { group: 'example.com', resource: 'gateways', name: 'g' } },
});
const addressesOf = ({ spec }: KubeObject): readonly string[] => (spec as { clusterIPs?: string[] }).clusterIPs ?? [];
const firstOf = (object: KubeObject): string => addressesOf(object)[0] ?? '';

async function names(fixture: Fixture, path: string): Promise<string[]> {
  const { entries } = await fixture.list(path);
  return entries.map(({ object }) => object.metadata.name ?? '').toSorted();
}

describe('addresses of services', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture(undefined, ['10.96.0.0/24', 'fd00::/112']);
  });
  after(() => fixture.close());

  it('are created and deleted with the service', async () => {
    const made = await fixture.create(SERVICES, service('one', { ipFamilyPolicy: 'RequireDualStack' }));
    assert.deepEqual(await names(fixture, ADDRESSES), [...addressesOf(made)].toSorted());
    const [v4 = '', v6 = ''] = addressesOf(made);
    const object = await fixture.get(ADDRESSES, v4);
    assert.deepEqual(object.metadata.labels, {
      'ipaddress.kubernetes.io/ip-family': 'IPv4',
      'ipaddress.kubernetes.io/managed-by': 'ipallocator.k8s.io',
    });
    assert.deepEqual(object['spec'], { parentRef: { resource: 'services', namespace: 'default', name: 'one' } });
    assert.match(object.metadata.uid ?? '', /^[0-9a-f-]{36}$/);
    assert.equal((await fixture.get(ADDRESSES, v6)).metadata.labels?.['ipaddress.kubernetes.io/ip-family'], 'IPv6');
    await fixture.update(SERVICES, service('one', { ipFamilyPolicy: 'SingleStack' }));
    assert.deepEqual(await names(fixture, ADDRESSES), [v4]);
    await fixture.update(SERVICES, service('one', { type: 'ExternalName', externalName: 'example.com' }));
    assert.deepEqual(await names(fixture, ADDRESSES), []);
    await fixture.update(SERVICES, service('one', { type: 'ClusterIP' }));
    assert.equal((await names(fixture, ADDRESSES)).length, 1);
    await fixture.delete(SERVICES, 'one');
    assert.deepEqual(await names(fixture, ADDRESSES), []);
    await fixture.create(SERVICES, service('headless', { clusterIP: 'None' }));
    assert.deepEqual(await names(fixture, ADDRESSES), []);
  });

  it('are deleted with a service whose last finalizer is removed', async () => {
    const made = service('held');
    made.metadata.finalizers = ['example.com/hold'];
    await fixture.create(SERVICES, made);
    await fixture.delete(SERVICES, 'held');
    assert.equal((await names(fixture, ADDRESSES)).length, 1);
    await fixture.patch(SERVICES, 'held', { type: 'merge', body: { metadata: { finalizers: null } }, duplicates: [] });
    assert.deepEqual(await names(fixture, ADDRESSES), []);
  });

  it('are not written for a service that is not', async () => {
    await fixture.create(SERVICES, service('twice'));
    const held = await names(fixture, ADDRESSES);
    assert.equal((await refusal(fixture.create(SERVICES, service('twice')))).reason, 'AlreadyExists');
    assert.equal((await refusal(fixture.create(SERVICES, service('no/name')))).reason, 'Invalid');
    assert.deepEqual(await names(fixture, ADDRESSES), held);
    await fixture.delete(SERVICES, 'twice');
  });

  it('are not given where others have made the object', async () => {
    await fixture.create(ADDRESSES, address('10.96.0.77'));
    const refused = refusal(fixture.create(SERVICES, service('late', { clusterIP: '10.96.0.77' })));
    assert.match((await refused).message, /failed to allocate IP 10\.96\.0\.77: provided IP is already allocated/);
    await fixture.delete(ADDRESSES, '10.96.0.77');
    await fixture.create(SERVICES, service('late', { clusterIP: '10.96.0.77' }));
    // The object of another owner is not removed with the service.
    await fixture.delete(ADDRESSES, '10.96.0.77');
    await fixture.create(ADDRESSES, address('10.96.0.77'));
    await fixture.delete(SERVICES, 'late');
    assert.deepEqual(await names(fixture, ADDRESSES), ['10.96.0.77']);
    await fixture.delete(ADDRESSES, '10.96.0.77');
  });

  it('are not the first and the last of the range, and are of the range', async () => {
    const refused = async (clusterIP: string): Promise<string> =>
      (await refusal(fixture.create(SERVICES, service('edge', { clusterIP })))).message;
    for (const outside of ['10.96.0.0', '10.96.0.255', '192.0.2.1'])
      assert.match(await refused(outside), /the provided network does not match the current range$/, outside);
  });
});

describe('ranges of services', () => {
  it('give no address twice to services made at the same time, and all of their addresses', async () => {
    const fixture = await openFixture(undefined, ['10.96.0.0/25']);
    const results = await Promise.allSettled([
      ...Array.from({ length: 130 }, (_, index) => fixture.create(SERVICES, service(`s${index}`))),
      ...Array.from({ length: 4 }, (_, index) =>
        fixture.create(SERVICES, service(`wanted${index}`, { clusterIP: '10.96.0.5' })),
      ),
    ]);
    const made = results.flatMap((one) => (one.status === 'fulfilled' ? [firstOf(one.value)] : []));
    const texts = results.flatMap((one) => (one.status === 'rejected' ? [String(one.reason)] : []));
    assert.equal(made.length, 126);
    assert.equal(new Set(made).size, 126);
    assert.deepEqual(await names(fixture, ADDRESSES), made.toSorted());
    assert.ok(texts.every((text) => /range is full|already allocated/.test(text)));
    await fixture.delete(SERVICES, 's0');
    await fixture.create(SERVICES, service('next'));
    await fixture.close();
  });

  it('keep what services and addresses of others hold over a restart', async () => {
    const storage = openMemoryStorage({ clock: systemClock, stamp: stampRevision });
    const first = await openFixture(storage, ['10.96.0.0/29']);
    await first.create(ADDRESSES, address('10.96.0.6'));
    const made = [await first.create(SERVICES, service('a')), await first.create(SERVICES, service('b'))].map(firstOf);
    // An older version wrote no such objects, or an administrator has deleted it.
    await first.delete(ADDRESSES, made[0] ?? '');
    first.registry.close();
    const second = await openFixture(storage, ['10.96.0.0/29']);
    for (const name of ['c', 'd', 'e']) made.push(firstOf(await second.create(SERVICES, service(name))));
    assert.equal(new Set([...made, '10.96.0.6']).size, 6);
    assert.match((await refusal(second.create(SERVICES, service('f')))).message, /range is full/);
    await second.close();
  });

  it('are those of the objects that are ready and stay', async () => {
    const fixture = await openFixture(undefined, ['10.96.0.0/30']);
    await fixture.create(RANGES, range('kubernetes', '10.96.0.0/30'));
    await fixture.create(SERVICES, service('a'));
    await fixture.create(SERVICES, service('b'));
    assert.match((await refusal(fixture.create(SERVICES, service('c')))).message, /range is full/);
    const more = range('more', '10.97.0.0/24');
    more.metadata.finalizers = ['networking.k8s.io/service-cidr-finalizer'];
    await fixture.create(RANGES, more);
    assert.match(firstOf(await fixture.create(SERVICES, service('c'))), /^10\.97\.0\./);
    await fixture.create(SERVICES, service('named', { clusterIP: '10.97.0.9' }));
    await fixture.patch(`${RANGES}:status`, 'more', {
      type: 'merge',
      body: {
        status: {
          conditions: [
            { type: 'Ready', status: 'False', reason: 'x', message: '', lastTransitionTime: '2026-01-01T00:00:00Z' },
          ],
        },
      },
      duplicates: [],
    });
    assert.match((await refusal(fixture.create(SERVICES, service('d')))).message, /range is full/);
    await fixture.patch(`${RANGES}:status`, 'more', { type: 'merge', body: { status: null }, duplicates: [] });
    await fixture.create(SERVICES, service('d'));
    await fixture.delete(RANGES, 'more');
    assert.match((await refusal(fixture.create(SERVICES, service('e')))).message, /range is full/);
    const refused = await refusal(fixture.create(SERVICES, service('e', { clusterIP: '10.97.0.200' })));
    assert.match(refused.message, /the provided network does not match the current range/);
    await fixture.delete(SERVICES, 'd');
    await fixture.close();
  });
});
