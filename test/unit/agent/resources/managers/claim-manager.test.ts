/**
 * Tests dynamic resources with a driver over a real socket: preparing, sharing, CDI devices, unpreparing and restarts.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { resourceClaims } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { serveGrpc } from '../../../../../agent/base/protocols/grpc/grpc-server.ts';
import type { IncomingOf, OutgoingOf } from '../../../../../api/grpc/messages.ts';
import { ClaimManager } from '../../../../../agent/resources/managers/dra/claim-manager.ts';
import { DRA_MESSAGES, DRA_METHODS } from '../../../../../agent/resources/managers/dra/schema.ts';
import { draCallMetrics } from '../../../../../agent/resources/statistics/driver-metrics.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

type Messages = typeof DRA_MESSAGES;
const DRIVER = 'gpu.example.com';

interface Rig {
  readonly rootDirectory: string;
  readonly client: FakeClient;
  readonly clock: FakeClock;
  readonly manager: ClaimManager;
  readonly calls: string[];
  error: string;
  /** The CDI name of each device begins with it. */
  cdiPrefix: string;
  readonly metrics: MetricsRegistry;
  register(manager: ClaimManager): Promise<void>;
}

async function setUp(t: TestContext, version: keyof typeof DRA_METHODS = 'v1.DRAPlugin'): Promise<Rig> {
  const rootDirectory = temporaryFolder();
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const socket = join(rootDirectory, 'driver.sock');
  const metrics = new MetricsRegistry();
  const manager = await ClaimManager.start({
    ...{ rootDirectory, client, nodeName: 'n1', clock, logger: silentLogger },
    observeCalls: draCallMetrics(metrics, clock),
  });
  const rig: Rig = {
    rootDirectory,
    client,
    clock,
    manager,
    metrics,
    calls: [],
    error: '',
    cdiPrefix: 'example.com/gpu',
    register: async (with_) => {
      const plugin = { name: DRIVER, endpoint: socket, supportedVersions: [version] };
      with_.handler().validate(plugin);
      await with_.handler().register(plugin, new AbortController().signal);
    },
  };
  const device = (request: string): OutgoingOf<Messages, 'Device'> => ({
    requestNames: [request],
    poolName: 'pool',
    deviceName: request,
    cdiDeviceIds: [`${rig.cdiPrefix}=${request}`],
  });
  const stop = await serveGrpc({
    socket,
    services: [
      {
        messages: DRA_MESSAGES,
        methods: methodsOf(version),
        handlers: {
          nodePrepareResources: ({ claims }: IncomingOf<Messages, 'NodePrepareResourcesRequest'>) => ({
            claims: claims.map(({ name, uid }) => {
              rig.calls.push(`prepare ${name}`);
              return { key: uid, value: { devices: [device('big'), device('small')], error: rig.error } };
            }),
          }),
          nodeUnprepareResources: ({ claims }: IncomingOf<Messages, 'NodeUnprepareResourcesRequest'>) => ({
            claims: claims.map(({ name, uid }) => {
              rig.calls.push(`unprepare ${name}`);
              return { key: uid, value: { error: rig.error } };
            }),
          }),
        },
      },
    ],
  });
  t.after(stop);
  return rig;
}

/** Returns the methods by their names on the wire. */
const methodsOf = (version: keyof typeof DRA_METHODS) => {
  const service = `k8s.io.kubelet.pkg.apis.dra.${version}`;
  return {
    nodePrepareResources: [service, 'NodePrepareResourcesRequest', 'NodePrepareResourcesResponse'],
    nodeUnprepareResources: [service, 'NodeUnprepareResourcesRequest', 'NodeUnprepareResourcesResponse'],
  } as const;
};

const claim = (
  reservedFor: readonly string[],
  allocation: object | undefined = { devices: { results: [{ driver: DRIVER }] } },
) =>
  ({
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceClaim',
    metadata: { name: 'mine', namespace: 'default' },
    status: {
      reservedFor: reservedFor.map((uid) => ({ resource: 'pods', name: uid, uid })),
      ...(allocation === undefined ? {} : { allocation }),
    },
  }) as unknown as KubeObject;

const pod = (uid: string, request?: string): Pod => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: uid, namespace: 'default', uid },
  spec: {
    resourceClaims: [{ name: 'gpu', resourceClaimName: 'mine' }],
    containers: [
      {
        name: 'c',
        image: 'i',
        resources: { claims: [{ name: 'gpu', ...(request === undefined ? {} : { request }) }] },
      },
      { name: 'other', image: 'i' },
    ],
  },
});

const devices = (manager: ClaimManager, of: Pod): (readonly string[])[] =>
  of.spec.containers.map((container) => manager.cdiDevices(of, container));

test('a driver stays registered when another plugin registers with its name and disappears', async (t) => {
  const rig = await setUp(t);
  await rig.register(rig.manager);
  const handler = rig.manager.handler();
  const other = { name: DRIVER, endpoint: '/nobody.sock', supportedVersions: ['v1.DRAPlugin'] };
  await handler.register(other, new AbortController().signal);
  await handler.deregister(other.name, other.endpoint);
  rig.client.seed(resourceClaims, claim(['a']));
  await rig.manager.prepare(pod('a'));
  assert.deepEqual(rig.calls, ['prepare mine']);
});

test('calls to drivers are measured, with buckets from a tenth of a second to about their deadline', async (t) => {
  const rig = await setUp(t);
  await rig.register(rig.manager);
  rig.client.seed(resourceClaims, claim(['a']));
  await rig.manager.prepare(pod('a'));
  const lines = rig.metrics.text().split('\n');
  const method = '/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources';
  const labels = `driver_name="${DRIVER}",grpc_status_code="OK",method_name="${method}"`;
  assert.ok(lines.includes(`dra_grpc_operations_duration_seconds_count{${labels}} 1`));
  const bounds = lines.flatMap((line) => /le="([^"]*)"/.exec(line)?.[1] ?? []);
  assert.deepEqual(
    [bounds[0], bounds[1], bounds[13], bounds[14], bounds.at(-1)],
    [...['0.1', '0.1534127404634391', '26.07345379475354', '39.99999999999997', '+Inf']],
  );
});

test('the slices of a driver that does not register within half a minute are deleted', async (t) => {
  const rig = await setUp(t);
  const deleted: string[] = [];
  rig.client.intercept(({ verb, options }) => {
    if (verb === 'deletecollection') deleted.push((options as { fieldSelector: string }).fieldSelector);
    return undefined;
  });
  const stop = new AbortController();
  const running = rig.manager.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await running;
  });
  await rig.clock.advance(0);
  assert.deepEqual(deleted, ['spec.nodeName=n1'], 'no driver has registered when the agent starts');
  const handler = rig.manager.handler();
  const endpoint = join(rig.rootDirectory, 'driver.sock');
  await rig.register(rig.manager);
  await handler.deregister(DRIVER, endpoint);
  await rig.clock.advance(29_000);
  await rig.register(rig.manager);
  await rig.clock.advance(60_000);
  assert.deepEqual(deleted.slice(1), [], 'the driver has registered again');
  await handler.deregister(DRIVER, endpoint);
  await rig.clock.advance(29_000);
  assert.deepEqual(deleted.slice(1), []);
  await rig.clock.advance(2_000);
  assert.deepEqual(deleted.slice(1), [`spec.nodeName=n1,spec.driver=${DRIVER}`]);
});

test('a claim waits until one of its name before it is unprepared, whose pod was deleted by force', async (t) => {
  const rig = await setUp(t);
  await rig.register(rig.manager);
  const old = rig.client.seed(resourceClaims, claim(['a']));
  await rig.manager.prepare(pod('a'));
  await rig.client.delete(resourceClaims, 'default', 'mine');
  rig.client.seed(resourceClaims, claim(['b']));
  await assert.rejects(
    rig.manager.prepare(pod('b')),
    new RegExp(`old ResourceClaim with same name mine and different UID ${old.metadata.uid} still exists`),
  );
  await rig.manager.release('a');
  await rig.manager.prepare(pod('b'));
  assert.deepEqual(rig.calls, ['prepare mine', 'unprepare mine', 'prepare mine']);
});

test('a claim is prepared once for all its pods, and unprepared with the last of them', async (t) => {
  const rig = await setUp(t);
  await rig.register(rig.manager);
  rig.client.seed(resourceClaims, claim(['a', 'b']));
  for (const uid of ['a', 'b', 'a']) await rig.manager.prepare(pod(uid));
  assert.deepEqual(rig.calls, ['prepare mine']);
  assert.deepEqual(devices(rig.manager, pod('a')), [['example.com/gpu=big', 'example.com/gpu=small'], []]);
  assert.deepEqual(devices(rig.manager, pod('b', 'small')), [['example.com/gpu=small'], []]);
  const [container] = pod('b', 'small').spec.containers;
  assert.ok(container);
  const small = { driver: DRIVER, pool: 'pool', device: 'small', cdiIds: ['example.com/gpu=small'] };
  assert.deepEqual(rig.manager.claimed(pod('b'), container), [
    { claim: 'mine', namespace: 'default', devices: [small] },
  ]);
  await rig.manager.release('a');
  assert.deepEqual(devices(rig.manager, pod('a')), [[], []]);
  await rig.manager.release('b');
  await rig.manager.release('b');
  assert.deepEqual(rig.calls, ['prepare mine', 'unprepare mine']);
});

test('two pods that prepare one claim at once both hold it', async (t) => {
  const rig = await setUp(t);
  await rig.register(rig.manager);
  rig.client.seed(resourceClaims, claim(['a', 'b']));
  await Promise.all([rig.manager.prepare(pod('a')), rig.manager.prepare(pod('b'))]);
  assert.deepEqual(rig.calls, ['prepare mine']);
  for (const uid of ['a', 'b']) assert.equal(devices(rig.manager, pod(uid))[0]?.length, 2, uid);
});

test('a pod that prepares a claim while the last holder releases it has its devices prepared afterwards', async (t) => {
  const rig = await setUp(t);
  await rig.register(rig.manager);
  rig.client.seed(resourceClaims, claim(['a', 'b']));
  await rig.manager.prepare(pod('a'));
  await Promise.all([rig.manager.release('a'), rig.manager.prepare(pod('b'))]);
  assert.deepEqual(rig.calls, ['prepare mine', 'unprepare mine', 'prepare mine']);
  assert.equal(devices(rig.manager, pod('b'))[0]?.length, 2);
  assert.deepEqual(rig.manager.pods(), ['b']);
});

test('a pod waits if its claim belongs to another pod or is not allocated, or the driver is not registered or fails', async (t) => {
  const rig = await setUp(t, 'v1beta1.DRAPlugin');
  const refused = (why: RegExp): Promise<void> => assert.rejects(rig.manager.prepare(pod('a')), why);
  await refused(/not found/);
  rig.client.seed(resourceClaims, claim(['other']));
  await refused(/pod a\(a\) is not allowed to use ResourceClaim mine/);
  rig.client.seed(resourceClaims, {
    ...claim(['a']),
    status: { reservedFor: [{ uid: 'a' }] },
  } as unknown as KubeObject);
  await refused(/ResourceClaim mine is not allocated yet/);
  rig.client.seed(resourceClaims, claim(['a']));
  await refused(/DRA driver gpu\.example\.com is not registered/);
  await rig.register(rig.manager);
  rig.error = 'no power';
  await refused(/NodePrepareResources failed for ResourceClaim mine: no power/);
  rig.error = '';
  await rig.manager.prepare(pod('a'));
  assert.deepEqual(devices(rig.manager, pod('a'))[0]?.length, 2);
});

test('a pod waits for the claim of a template; a template that needs no claim is skipped', async (t) => {
  const rig = await setUp(t);
  const templated = (status: object): Pod => {
    const of = pod('a');
    return {
      ...of,
      spec: { ...of.spec, resourceClaims: [{ name: 'gpu', resourceClaimTemplateName: 'template' }] },
      status,
    };
  };
  await assert.rejects(rig.manager.prepare(templated({})), /resource claim not created yet/);
  await rig.manager.prepare(templated({ resourceClaimStatuses: [{ name: 'gpu' }] }));
  assert.deepEqual(rig.calls, []);
});

test('after a restart prepared claims are restored, and a failed unprepare is retried', async (t) => {
  const rig = await setUp(t);
  await rig.register(rig.manager);
  rig.client.seed(resourceClaims, claim(['a']));
  await rig.manager.prepare(pod('a'));
  const again = await ClaimManager.start({
    rootDirectory: rig.rootDirectory,
    client: rig.client,
    nodeName: 'n1',
    clock: new FakeClock(),
    logger: silentLogger,
  });
  assert.equal(devices(again, pod('a'))[0]?.length, 2);
  await again.release('a');
  assert.deepEqual(again.pods(), ['a'], 'the driver is not there yet');
  await rig.register(again);
  await again.release('a');
  assert.deepEqual(again.pods(), []);
  assert.deepEqual(rig.calls, ['prepare mine', 'unprepare mine']);
});

test('the devices of a driver are unprepared if another driver of the claim fails, also after a restart of the agent', async (t) => {
  const rig = await setUp(t);
  const other = 'net.example.com';
  const answering = { name: other, endpoint: join(rig.rootDirectory, 'driver.sock') };
  const failing = { name: other, endpoint: join(rig.rootDirectory, 'nobody.sock') };
  const register = async (manager: ClaimManager, plugin: typeof failing): Promise<void> => {
    await rig.register(manager);
    const { signal } = new AbortController();
    await manager.handler().register({ ...plugin, supportedVersions: ['v1.DRAPlugin'] }, signal);
  };
  await register(rig.manager, failing);
  rig.client.seed(resourceClaims, claim(['a'], { devices: { results: [{ driver: DRIVER }, { driver: other }] } }));
  await assert.rejects(rig.manager.prepare(pod('a')));
  assert.deepEqual(rig.calls, ['prepare mine']);
  assert.deepEqual(rig.manager.pods(), ['a']);
  const { rootDirectory, client, clock } = rig;
  const again = await ClaimManager.start({ rootDirectory, client, clock, nodeName: 'n1', logger: silentLogger });
  assert.deepEqual(again.pods(), ['a']);
  await register(again, answering);
  await again.release('a');
  assert.deepEqual(rig.calls, ['prepare mine', 'unprepare mine', 'unprepare mine'], 'by both drivers');
  assert.deepEqual(again.pods(), []);
});

test('a claim that only one of two drivers has prepared is not ready, and is prepared once the other driver answers', async (t) => {
  const rig = await setUp(t);
  await rig.register(rig.manager);
  const other = { name: 'net.example.com', endpoint: '/nobody.sock', supportedVersions: ['v1.DRAPlugin'] };
  const { signal } = new AbortController();
  await rig.manager.handler().register(other, signal);
  const results = [{ driver: DRIVER }, { driver: other.name }];
  rig.client.seed(resourceClaims, claim(['a'], { devices: { results } }));
  await assert.rejects(rig.manager.prepare(pod('a')));
  await assert.rejects(rig.manager.prepare(pod('a')));
  await rig.manager.handler().register({ ...other, endpoint: join(rig.rootDirectory, 'driver.sock') }, signal);
  await rig.manager.prepare(pod('a'));
  await rig.manager.prepare(pod('a'));
  assert.deepEqual(rig.calls, ['prepare mine', 'prepare mine']);
});

test('a driver without a supported service is rejected', async (t) => {
  const rig = await setUp(t);
  assert.throws(
    () => rig.manager.handler().validate({ name: DRIVER, endpoint: '/x', supportedVersions: ['v9.DRAPlugin'] }),
    /none of the DRA gRPC services v9\.DRAPlugin is supported/,
  );
});

test('a driver that returns a NUL, or more than fits into a checkpoint, keeps the pod from starting, and no device is stored', async (t) => {
  const rig = await setUp(t);
  await rig.register(rig.manager);
  rig.client.seed(resourceClaims, claim(['a']));
  rig.cdiPrefix = 'example.com/gpu\u0000';
  await assert.rejects(
    rig.manager.prepare(pod('a')),
    /response of DRA driver gpu\.example\.com .* has a NUL character/,
  );
  rig.cdiPrefix = 'x'.repeat(1 << 20);
  await assert.rejects(rig.manager.prepare(pod('a')), /has more than 262144 bytes/);
  assert.deepEqual(devices(rig.manager, pod('a')), [[], []]);
  await rig.manager.release('a');
  assert.deepEqual(rig.calls, ['prepare mine', 'prepare mine', 'unprepare mine']);
});

test('an error of a driver that has megabytes is cut before it becomes an event and a line of the log', async (t) => {
  const rig = await setUp(t);
  await rig.register(rig.manager);
  rig.client.seed(resourceClaims, claim(['a']));
  rig.error = 'e'.repeat(1 << 20);
  const error = await rig.manager.prepare(pod('a')).then(
    () => assert.fail('prepared'),
    (reason: unknown) => reason as Error,
  );
  assert.ok(error.message.length < 9000, `${error.message.length} characters`);
});

test('a driver with the name of a member that every object has is called, and no claim is ready without it', async (t) => {
  const rig = await setUp(t);
  rig.client.seed(resourceClaims, claim(['a'], { devices: { results: [{ driver: 'constructor' }] } }));
  await assert.rejects(rig.manager.prepare(pod('a')), /DRA driver constructor is not registered/);
});

test('the claim for extended resources gives a container the devices of its requests', async (t) => {
  const rig = await setUp(t);
  await rig.register(rig.manager);
  rig.client.seed(resourceClaims, claim(['a']));
  const resource = 'example.com/gpu';
  const mapping = (containerName: string, requestName: string) => ({
    containerName,
    resourceName: resource,
    requestName,
  });
  const requests = { [resource]: '1' };
  const extended: Pod = {
    ...pod('a'),
    spec: {
      containers: [
        { name: 'c', image: 'i', resources: { requests } },
        { name: 'd', image: 'i', resources: { requests } },
        { name: 'other', image: 'i' },
      ],
    },
    status: {
      extendedResourceClaimStatus: {
        resourceClaimName: 'mine',
        requestMappings: [mapping('c', 'big'), mapping('d', 'small')],
      },
    } as never,
  };
  await rig.manager.prepare(extended);
  assert.deepEqual(rig.calls, ['prepare mine']);
  assert.deepEqual(devices(rig.manager, extended), [['example.com/gpu=big'], ['example.com/gpu=small'], []]);
  await rig.manager.release('a');
  assert.deepEqual(rig.calls, ['prepare mine', 'unprepare mine']);
});
