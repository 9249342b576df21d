import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isStatusError } from '../../../../../../api/meta/status-error.ts';
import { ServiceAllocator } from '../../../../../../controlplane/registry/kinds/core/service-allocation.ts';
import type { Service, ServiceSpec } from '../../../../../../controlplane/registry/kinds/core/service-types.ts';
import {
  serviceErrors,
  serviceUpdateErrors,
} from '../../../../../../controlplane/registry/kinds/core/service-validation.ts';
import type { Store } from '../../../../../../controlplane/registry/store.ts';
import type { Reservation } from '../../../../../../controlplane/registry/strategy.ts';
import type { WatchObserver } from '../../../../../../controlplane/storage/storage.ts';
import type { VersionChange } from '../../../../../../controlplane/storage/resource-versions.ts';

/** An allocator over stored services. `write` also stores what was reserved, as the storage shows it. */
class TestAllocator {
  readonly #allocator: ServiceAllocator;
  #observer: WatchObserver | undefined;

  constructor(stored: readonly Service[], serviceClusterCidrs: readonly string[] = ['10.96.0.0/24']) {
    const watch = (_options: object, observer: WatchObserver): void => void (this.#observer = observer);
    const storeOf = (entries: readonly object[]) =>
      ({
        cache: { list: () => ({ entries }), get: () => undefined, entryOf: (entry: object) => entry },
        storage: { watch, revision: () => 1 },
      }) as unknown as Store;
    const services = stored.map((object) => ({ object }));
    const stores = { get: (_: string, resource: string) => storeOf(resource === 'services' ? services : []) };
    this.#allocator = new ServiceAllocator({ serviceClusterCidrs, nodePorts: { from: 30000, to: 30009 }, stores });
  }

  reserve(service: Service, old?: Service): Reservation {
    return this.#allocator.reserve(service, old);
  }

  write(service: Service, old?: Service): void {
    const reservation = this.reserve(service, old);
    this.stored(service, old);
    reservation.commit();
  }

  /** Reports that a service was stored, by this server or another one. */
  stored(current: Service | undefined, previous?: Service): void {
    const entry = (object: Service | undefined) => (object === undefined ? undefined : { object });
    const change = { current: entry(current), previous: entry(previous) } as unknown as VersionChange;
    this.#observer?.onEvents([change]);
  }
}

const allocatorOver = (stored: readonly Service[], serviceClusterCidrs?: readonly string[]): TestAllocator =>
  new TestAllocator(stored, serviceClusterCidrs);

const DUAL = ['10.96.0.0/24', 'fd00::/112'];
const service = (spec: ServiceSpec): Service => ({ metadata: { name: 's' }, spec: { type: 'ClusterIP', ...spec } });

function refusal(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (isStatusError(error)) return error.message;
    throw error;
  }
  return '';
}

test('no two services get one address or port, also after a restart', () => {
  const allocator = allocatorOver([]);
  const made = Array.from({ length: 10 }, () => {
    const one = service({ type: 'NodePort', ports: [{ port: 80 }] });
    allocator.write(one);
    return one;
  });
  assert.equal(new Set(made.map(({ spec }) => spec?.clusterIP)).size, 10);
  assert.equal(new Set(made.map(({ spec }) => spec?.ports?.[0]?.nodePort)).size, 10);
  const restarted = allocatorOver(made);
  const [first] = made;
  const again = service({ clusterIP: first?.spec?.clusterIP });
  assert.match(
    refusal(() => restarted.reserve(again, undefined)),
    /provided IP is already allocated/,
  );
  const further = service({ type: 'NodePort', ports: [{ port: 80 }] });
  assert.match(
    refusal(() => restarted.reserve(further, undefined)),
    /range is full/,
  );
});

test('the addresses and ports of services that another server stores are taken, and free again when it deletes them', () => {
  const allocator = allocatorOver([]);
  allocator.write(service({ clusterIP: '10.96.0.9' }));
  const theirs = service({
    type: 'NodePort',
    clusterIP: '10.96.0.7',
    clusterIPs: ['10.96.0.7'],
    ports: [{ nodePort: 30001 }],
  });
  allocator.stored(theirs);
  const port = service({ type: 'NodePort', ports: [{ port: 80, nodePort: 30001 }] });
  const address = service({ clusterIP: '10.96.0.7' });
  assert.match(
    refusal(() => allocator.reserve(port)),
    /provided port is already allocated/,
  );
  assert.match(
    refusal(() => allocator.reserve(address)),
    /provided IP is already allocated/,
  );
  allocator.stored(undefined, theirs);
  allocator.write(port);
  allocator.write(address);
});

test('the addresses and ports that a failed write took are free again', () => {
  const allocator = allocatorOver([]);
  allocator.reserve(service({ clusterIP: '10.96.0.7' }), undefined).revert();
  allocator.write(service({ clusterIP: '10.96.0.7' }));
});

test('one number of a node serves the protocols of one port only', () => {
  const allocator = allocatorOver([]);
  const shared = service({
    type: 'NodePort',
    ports: [
      { port: 80, protocol: 'TCP', nodePort: 30001 },
      { port: 80, protocol: 'UDP' },
    ],
  });
  allocator.write(shared);
  assert.deepEqual(
    shared.spec?.ports?.map(({ nodePort }) => nodePort),
    [30001, 30001],
  );
  const split = service({
    type: 'NodePort',
    ports: [
      { port: 80, protocol: 'TCP', nodePort: 30002 },
      { port: 81, protocol: 'UDP', nodePort: 30002 },
    ],
  });
  assert.match(
    refusal(() => allocator.reserve(split, undefined)),
    /spec\.ports\[1\]\.nodePort: Invalid value: 30002: provided port is already allocated/,
  );
});

test('a port keeps its number on the nodes by its name', () => {
  const old = service({
    type: 'NodePort',
    clusterIP: '10.96.0.9',
    clusterIPs: ['10.96.0.9'],
    ports: [{ name: 'web', port: 80, protocol: 'TCP', nodePort: 30005 }],
  });
  const allocator = allocatorOver([old]);
  const changed = service({ type: 'NodePort', ports: [{ name: 'web', port: 8080, protocol: 'TCP' }] });
  allocator.write(changed, old);
  assert.equal(changed.spec?.ports?.[0]?.nodePort, 30005);
  assert.equal(changed.spec?.clusterIP, '10.96.0.9');
});

test('a second address family is added and removed by the policy', () => {
  const allocator = allocatorOver([], DUAL);
  const old = service({ ipFamilyPolicy: 'SingleStack' });
  allocator.write(old);
  const dual = service({ ...structuredClone(old.spec), ipFamilyPolicy: 'RequireDualStack' });
  allocator.write(dual, old);
  assert.deepEqual(dual.spec?.ipFamilies, ['IPv4', 'IPv6']);
  assert.equal(dual.spec?.clusterIPs?.[0], old.spec?.clusterIP);
  assert.match(dual.spec?.clusterIPs?.[1] ?? '', /^fd00::/);
  assert.deepEqual(
    serviceUpdateErrors(dual, old)
      .filter((error) => !error.field.startsWith('spec.ports'))
      .map(String),
    ['spec.sessionAffinity: Required value', 'spec.internalTrafficPolicy: Required value'],
  );
  const less = service({ ...structuredClone(dual.spec), ipFamilies: ['IPv4'] });
  assert.match(
    refusal(() => allocator.reserve(less, dual)),
    /must be 'SingleStack' to release the secondary IP family/,
  );
  const single = service({ ...structuredClone(dual.spec), ipFamilyPolicy: 'SingleStack' });
  allocator.write(single, dual);
  assert.deepEqual(single.spec?.clusterIPs, [old.spec?.clusterIP]);
});

test('a port of health checks that cannot be had is a fault of the server', () => {
  const allocator = allocatorOver([]);
  const one = service({
    type: 'LoadBalancer',
    externalTrafficPolicy: 'Local',
    healthCheckNodePort: 80,
    ports: [{ port: 80, protocol: 'TCP' }],
  });
  assert.equal(
    refusal(() => allocator.reserve(one, undefined)),
    'Internal error occurred: failed to allocate requested HealthCheck NodePort 80: provided port is not in the valid range. The range of valid ports is 30000-30009',
  );
});

test('external addresses are written in the usual way and mean something elsewhere', () => {
  const spec = { externalIPs: ['010.0.0.1', '169.254.0.1'], ports: [{ port: 80, targetPort: 80, protocol: 'TCP' }] };
  const errors = serviceErrors(service(spec)).map(String);
  assert.deepEqual(
    errors.filter((text) => text.startsWith('spec.externalIPs')),
    [
      'spec.externalIPs[0]: Invalid value: "010.0.0.1": must not have leading 0s',
      'spec.externalIPs[1]: Invalid value: "169.254.0.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)',
    ],
  );
});

test('source ranges in an annotation that stays the same are not validated again', () => {
  const annotation = 'service.beta.kubernetes.io/load-balancer-source-ranges';
  const ranged = (ranges: string): Service => ({
    ...service({ type: 'LoadBalancer' }),
    metadata: { name: 's', annotations: { [annotation]: ranges } },
  });
  const faults = (now: Service, old?: Service): string[] =>
    serviceErrors(now, old)
      .map(String)
      .filter((text) => text.startsWith('metadata'));
  assert.equal(faults(ranged('10.0.0.1')).length, 1);
  assert.equal(faults(ranged('10.0.0.1 '), ranged('10.0.0.1')).length, 1);
  assert.deepEqual(faults(ranged('10.0.0.1'), ranged('10.0.0.1')), []);
  const closed = { ...ranged('10.0.0.1'), spec: { type: 'ClusterIP' } };
  assert.deepEqual(faults(closed, ranged('10.0.0.1')), [
    `metadata.annotations[${annotation}]: Forbidden: may only be used when \`type\` is 'LoadBalancer'`,
  ]);
});
