/** Tests the health of devices that a DRA driver reports over a real socket. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { resourceClaims } from '../../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { serveGrpc } from '../../../../../agent/base/protocols/grpc/grpc-server.ts';
import { ClaimManager } from '../../../../../agent/resources/managers/dra/claim-manager.ts';
import {
  DRA_MESSAGES,
  DRA_METHODS,
  HEALTH_MESSAGES,
  HEALTH_METHODS,
} from '../../../../../agent/resources/managers/dra/schema.ts';
import { FakeClient } from '../../../../fakes/fake-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const DRIVER = 'gpu.example.com';
const HEALTHY = 1;
const UNHEALTHY = 2;

const pod: Pod = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'a', namespace: 'default', uid: 'a' },
  spec: {
    resourceClaims: [{ name: 'gpu', resourceClaimName: 'mine' }],
    containers: [
      { name: 'all', image: 'i', resources: { claims: [{ name: 'gpu' }] } },
      { name: 'one', image: 'i', resources: { claims: [{ name: 'gpu', request: 'small' }] } },
      { name: 'none', image: 'i' },
    ],
  },
};

interface Rig {
  readonly clock: FakeClock;
  readonly manager: ClaimManager;
  /** Resolves with the pods of the next change. */
  changed(): Promise<readonly string[]>;
  /** Reports the health of devices of the pool `pool`. */
  report(...devices: readonly object[]): void;
}

/** Resolves to a driver whose device `big` has a CDI name, and `small` has none. The pod has prepared both. */
async function setUp(t: TestContext): Promise<Rig> {
  const rootDirectory = temporaryFolder();
  const socket = join(rootDirectory, 'driver.sock');
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  let changed = Promise.withResolvers<readonly string[]>();
  const opened = Promise.withResolvers<(message: object) => void>();
  const stop = await serveGrpc({
    socket,
    services: [
      {
        messages: DRA_MESSAGES,
        methods: DRA_METHODS['v1.DRAPlugin'],
        handlers: {
          nodePrepareResources: ({ claims }: { readonly claims: readonly { readonly uid: string }[] }) => ({
            claims: claims.map(({ uid }) => ({
              key: uid,
              value: {
                devices: [
                  { requestNames: ['big'], poolName: 'pool', deviceName: 'big', cdiDeviceIds: ['example.com/gpu=big'] },
                  { requestNames: ['small'], poolName: 'pool', deviceName: 'small', cdiDeviceIds: [] },
                ],
              },
            })),
          }),
        },
      },
      {
        messages: HEALTH_MESSAGES,
        methods: HEALTH_METHODS,
        handlers: {},
        streams: {
          nodeWatchResources: (_: never, send, signal) =>
            new Promise((resolve) => {
              signal.addEventListener('abort', () => resolve(), { once: true });
              opened.resolve(send);
            }),
        },
      },
    ],
  });
  const manager = await ClaimManager.start({
    ...{ rootDirectory, client, nodeName: 'n1', clock, logger: silentLogger },
    onPodsChange: (uids) => {
      changed.resolve(uids);
      changed = Promise.withResolvers();
    },
  });
  const abort = new AbortController();
  const running = manager.run(abort.signal);
  t.after(async () => {
    abort.abort();
    await running;
    await stop();
  });
  client.seed(resourceClaims, {
    metadata: { name: 'mine', namespace: 'default' },
    status: { reservedFor: [{ uid: 'a' }], allocation: { devices: { results: [{ driver: DRIVER }] } } },
  } as unknown as KubeObject);
  const plugin = { name: DRIVER, endpoint: socket, supportedVersions: ['v1.DRAPlugin', 'v1alpha1.DRAResourceHealth'] };
  await manager.handler().register(plugin, abort.signal);
  await manager.prepare(pod);
  const send = await opened.promise;
  return {
    clock,
    manager,
    changed: () => changed.promise,
    report: (...devices) =>
      send({
        devices: devices.map(({ name, ...more }: { name?: string }) => ({
          device: { poolName: 'pool', deviceName: name },
          ...more,
        })),
      }),
  };
}

test('the status of a container has the health of the devices of its claims, and pods are synced when it changes', async (t) => {
  const rig = await setUp(t);
  const unknown = { resourceID: 'example.com/gpu=big', health: 'Unknown' };
  const small = { resourceID: `${DRIVER}/pool/small`, health: 'Unknown' };
  assert.deepEqual(rig.manager.deviceHealth(pod, 'all'), [{ name: 'claim:gpu', resources: [unknown, small] }]);
  assert.deepEqual(rig.manager.deviceHealth(pod, 'one'), [{ name: 'claim:gpu/small', resources: [small] }]);
  assert.equal(rig.manager.deviceHealth(pod, 'none'), undefined);
  const first = rig.changed();
  rig.report(
    { name: 'big', health: HEALTHY, message: 'temperature 45 °C' },
    { name: 'of-no-claim', health: UNHEALTHY },
  );
  assert.deepEqual(await first, ['a']);
  assert.deepEqual(rig.manager.deviceHealth(pod, 'all')?.[0]?.resources, [
    { resourceID: 'example.com/gpu=big', health: 'Healthy', message: 'temperature 45 °C' },
    small,
  ]);
  const second = rig.changed();
  rig.report({ name: 'small', health: UNHEALTHY, message: 'x'.repeat(2000) });
  await second;
  assert.deepEqual(rig.manager.deviceHealth(pod, 'one')?.[0]?.resources, [
    { ...small, health: 'Unhealthy', message: `${'x'.repeat(1021)}...` },
  ]);
});

test('a report holds for half a minute, or as long as it says', async (t) => {
  const rig = await setUp(t);
  const reported = rig.changed();
  rig.report({ name: 'big', health: HEALTHY }, { name: 'small', health: HEALTHY, healthCheckTimeoutSeconds: 60 });
  await reported;
  const healths = () => rig.manager.deviceHealth(pod, 'all')?.[0]?.resources?.map(({ health }) => health);
  await rig.clock.advance(30_000);
  assert.deepEqual(healths(), ['Healthy', 'Healthy']);
  await rig.clock.advance(1_000);
  assert.deepEqual(healths(), ['Unknown', 'Healthy']);
  await rig.clock.advance(30_000);
  assert.deepEqual(healths(), ['Unknown', 'Unknown']);
});

test('a driver that reports without an end is read ten times per second', async (t) => {
  const rig = await setUp(t);
  let changes = 0;
  const count = async (): Promise<void> => {
    for (;;) {
      await rig.changed();
      changes += 1;
    }
  };
  void count();
  for (let at = 0; at < 200; at += 1) rig.report({ name: 'big', health: at % 2 === 0 ? HEALTHY : UNHEALTHY });
  await until('the first reports', () => (changes >= 11 ? true : undefined));
  // Whatever else is there would arrive within this time.
  for (let turn = 0; turn < 100; turn += 1) await nextTurn();
  assert.equal(changes, 11);
  await rig.clock.advance(1000);
  await until('the next reports', () => (changes >= 21 ? true : undefined));
  for (let turn = 0; turn < 100; turn += 1) await nextTurn();
  assert.ok(changes <= 22, `${changes} changes`);
});

test('a driver with a name that no claim can name is refused, and so is one beyond a hundred', async (t) => {
  const { manager } = await setUp(t);
  const { validate } = manager.handler();
  const plugin = { endpoint: '/x', supportedVersions: ['v1.DRAPlugin'] };
  for (const name of ['', '../../etc', 'a\n', 'x'.repeat(1 << 20)])
    assert.throws(() => validate({ ...plugin, name }), /is not a domain name of at most 63 characters/);
  assert.doesNotThrow(() => validate({ ...plugin, name: 'gpu.Example.com' }));
  for (let at = 1; at < 100; at += 1)
    await manager.handler().register({ ...plugin, name: `d${at}.example.com` }, new AbortController().signal);
  assert.throws(() => validate({ ...plugin, name: 'one-more.example.com' }), /100 drivers are registered already/);
  assert.doesNotThrow(() => validate({ ...plugin, name: DRIVER }));
});
