/** Tests device plugins over real sockets: registration, devices and their health, allocation, and restarts. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import {
  DeviceManager,
  type DeviceManagerOptions,
} from '../../../../../agent/resources/managers/devicemanager/device-manager.ts';
import { serveRegistration } from '../../../../../agent/resources/managers/devicemanager/registration-server.ts';
import { maskOf } from '../../../../../agent/resources/managers/topology/numa-mask.ts';
import { FakeDevicePlugin, type FakePluginOptions, healthy } from '../../../../fakes/device-plugin.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { resourcePod } from '../../../../fakes/resource-pod.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const GPU = 'example.com/gpu';
const gpuPod = (uid: string, count: number) => resourcePod(uid, [{ limits: { [GPU]: String(count) } }]);

interface Rig {
  readonly directory: string;
  readonly clock: FakeClock;
  readonly manager: DeviceManager;
  readonly changedPods: string[];
  plugin(options: Omit<FakePluginOptions, 'directory'>): Promise<FakeDevicePlugin>;
}

async function setUp(t: TestContext, options: Partial<DeviceManagerOptions> = {}): Promise<Rig> {
  const directory = options.directory ?? temporaryFolder();
  const clock = new FakeClock();
  const changedPods: string[] = [];
  const abort = new AbortController();
  const manager = await DeviceManager.start({
    directory,
    clock,
    logger: silentLogger,
    numaNodes: [0, 1],
    affinity: { affinity: () => ({ affinity: undefined, preferred: false }) },
    onNodeChange: () => undefined,
    onPodsChange: (uids) => changedPods.push(...uids),
    observe: () => undefined,
    ...options,
  });
  const close = await serveRegistration({ directory, devices: manager, logger: silentLogger, signal: abort.signal });
  t.after(async () => {
    abort.abort();
    await close();
  });
  return {
    directory,
    clock,
    manager,
    changedPods,
    plugin: async (of) => {
      const plugin = new FakeDevicePlugin({ directory, ...of });
      await plugin.serve();
      t.after(() => plugin.close());
      await plugin.register(GPU);
      await until('the capacity', () => manager.capacity().capacity[GPU] === String(of.devices.length));
      return plugin;
    },
  };
}

async function admit(manager: DeviceManager, pod: ReturnType<typeof gpuPod>): Promise<void> {
  for (const container of [...(pod.spec.initContainers ?? []), ...pod.spec.containers])
    await manager.allocate(pod, container);
}

const deviceIds = (manager: DeviceManager, uid: string, container = 'main'): string[] =>
  (manager.containerDevices(uid, container).get(GPU) ?? []).map(({ id }) => id);

test('a plugin registers and its devices appear on the node; unhealthy ones are not allocatable', async (t) => {
  const { manager, plugin } = await setUp(t);
  const gpus = await plugin({ devices: healthy({ a: undefined, b: undefined }) });
  assert.deepEqual(manager.capacity(), { capacity: { [GPU]: '2' }, allocatable: { [GPU]: '2' } });
  gpus.change([{ id: 'a', health: 'Unhealthy' }, ...healthy({ b: undefined, c: undefined })]);
  await until('the capacity', () => manager.capacity().capacity[GPU] === '3');
  assert.deepEqual(manager.capacity(), { capacity: { [GPU]: '3' }, allocatable: { [GPU]: '2' } });
});

test('a plugin with another version or an invalid resource name is rejected with the reason', async (t) => {
  const { directory } = await setUp(t);
  const plugin = new FakeDevicePlugin({ directory, devices: [] });
  await assert.rejects(plugin.register(GPU, 'v2'), /requested API version \\?"v2\\?" is not supported by kubelet/);
  await assert.rejects(plugin.register('gpu'), /the ResourceName \\?"gpu\\?" is invalid/);
  await assert.rejects(plugin.register('kubernetes.io/gpu'), /is invalid/);
});

test('a disconnected plugin leaves unhealthy devices, which disappear after five minutes', async (t) => {
  const { manager, plugin, clock } = await setUp(t);
  const gpus = await plugin({ devices: healthy({ a: undefined, b: undefined }) });
  await gpus.close();
  await until('the change of what is allocatable', () => manager.capacity().allocatable[GPU] === '0');
  assert.equal(manager.capacity().capacity[GPU], '2');
  await clock.advance(5 * 60_000);
  assert.deepEqual(manager.capacity(), { capacity: { [GPU]: '0' }, allocatable: { [GPU]: '0' } });
});

test('a plugin that has gone does not keep a pod back whose devices for the resource come from a claim', async (t) => {
  const { manager, plugin } = await setUp(t);
  await (await plugin({ devices: healthy({ a: undefined }) })).close();
  await until('the change of what is allocatable', () => manager.capacity().allocatable[GPU] === '0');
  const pod = gpuPod('u', 1);
  await assert.rejects(admit(manager, pod), /no healthy devices present/);
  const requestMappings = [{ containerName: 'main', resourceName: GPU, requestName: 'r' }];
  await admit(manager, {
    ...pod,
    status: { extendedResourceClaimStatus: { resourceClaimName: 'x', requestMappings } },
  });
  assert.deepEqual(deviceIds(manager, 'u'), []);
});

test('a plugin that reconnects in time has its devices again', async (t) => {
  const { manager, plugin, clock } = await setUp(t);
  await (await plugin({ devices: healthy({ a: undefined }) })).close();
  await until('the change of what is allocatable', () => manager.capacity().allocatable[GPU] === '0');
  await clock.advance(60_000);
  await plugin({ devices: healthy({ a: undefined }), socket: 'again.sock' });
  await until('the change of what is allocatable', () => manager.capacity().allocatable[GPU] === '1');
});

test("containers get devices and the plugin's container options; no device is allocated twice", async (t) => {
  const { manager, plugin } = await setUp(t);
  const gpus = await plugin({
    devices: healthy({ a: undefined, b: undefined, c: undefined }),
    options: { preStartRequired: true },
    allocate: (ids) => ({
      envs: { GPUS: ids.join(',') },
      mounts: [{ containerPath: '/usr/lib/gpu', hostPath: '/opt/gpu', readOnly: true }],
      devices: ids.map((id) => ({ containerPath: `/dev/gpu-${id}`, hostPath: `/dev/null`, permissions: 'rw' })),
      annotations: { 'example.com/gpus': ids.join(',') },
      cdiDevices: ids.map((id) => ({ name: `example.com/gpu=${id}` })),
    }),
  });
  const pod = gpuPod('p', 2);
  await admit(manager, pod);
  await admit(manager, pod);
  assert.equal(gpus.allocated.length, 1, 'once, however often it is made sure');
  const ids = deviceIds(manager, 'p');
  assert.equal(ids.length, 2);
  const [container] = pod.spec.containers;
  assert.ok(container);
  const run = await manager.runOptions(pod, container);
  assert.deepEqual(run.env, new Map([['GPUS', ids.join(',')]]));
  assert.deepEqual(run.mounts, [{ containerPath: '/usr/lib/gpu', hostPath: '/opt/gpu', readonly: true }]);
  assert.deepEqual(
    run.devices.map((device) => device.containerPath),
    ids.map((id) => `/dev/gpu-${id}`),
  );
  assert.deepEqual(run.annotations, { 'example.com/gpus': ids.join(',') });
  assert.deepEqual(
    run.cdiDevices,
    ids.map((id) => `example.com/gpu=${id}`),
  );
  assert.deepEqual(gpus.preStarted, [ids]);
  await assert.rejects(
    admit(manager, gpuPod('q', 2)),
    /requested number of devices unavailable for example.com\/gpu. Requested: 2, Available: 1/,
  );
  manager.release('p');
  await admit(manager, gpuPod('q', 3));
});

test('later containers reuse the devices of init containers', async (t) => {
  const { manager, plugin } = await setUp(t);
  await plugin({ devices: healthy({ a: undefined, b: undefined }) });
  await admit(manager, resourcePod('p', [{ limits: { [GPU]: '1' } }], [{ name: 'init', limits: { [GPU]: '2' } }]));
  assert.equal(new Set([...deviceIds(manager, 'p', 'init'), ...deviceIds(manager, 'p')]).size, 2);
});

test("devices come from the NUMA nodes of the hint, and among these by the plugin's preference", async (t) => {
  const { manager, plugin } = await setUp(t, {
    affinity: { affinity: () => ({ affinity: maskOf([1]), preferred: true }) },
  });
  const asked: (readonly string[])[] = [];
  await plugin({
    devices: healthy({ a0: 0, b1: 1, c1: 1, d1: 1 }),
    options: { getPreferredAllocationAvailable: true },
    prefer: (available, count) => {
      asked.push(available);
      return available.toSorted().reverse().slice(0, count);
    },
  });
  await admit(manager, gpuPod('p', 2));
  assert.deepEqual(deviceIds(manager, 'p').toSorted(), ['c1', 'd1']);
  assert.deepEqual(
    asked.map((ids) => ids.toSorted()),
    [['b1', 'c1', 'd1']],
  );
  await admit(manager, gpuPod('q', 2));
  assert.deepEqual(deviceIds(manager, 'q').toSorted(), ['a0', 'b1']);
});

test('hints: NUMA nodes with enough devices; devices without NUMA node have no preference', async (t) => {
  const { manager, plugin } = await setUp(t);
  const gpus = await plugin({ devices: healthy({ a: 0, b: 1, c: 1 }) });
  const on = (preferred: boolean, ...nodes: number[]) => ({ affinity: maskOf(nodes), preferred });
  const [container] = gpuPod('p', 1).spec.containers;
  assert.ok(container);
  assert.deepEqual(manager.containerHints(gpuPod('p', 1), container), {
    [GPU]: [on(true, 0), on(true, 1), on(false, 0, 1)],
  });
  assert.deepEqual(manager.podHints(gpuPod('p', 2)), { [GPU]: [on(true, 1), on(false, 0, 1)] });
  assert.deepEqual(manager.podHints(gpuPod('p', 4)), { [GPU]: [] });
  gpus.change(healthy({ a: undefined, b: undefined }));
  await until('the capacity', () => manager.capacity().capacity[GPU] === '2');
  assert.deepEqual(manager.podHints(gpuPod('p', 2)), { [GPU]: undefined });
});

test('the pod status reports the health of allocated devices', async (t) => {
  const { manager, plugin, changedPods } = await setUp(t);
  const gpus = await plugin({ devices: healthy({ a: undefined, b: undefined }) });
  const pod = gpuPod('p', 2);
  await admit(manager, pod);
  gpus.change([{ id: 'a', health: 'Unhealthy' }, ...healthy({ b: undefined })]);
  await until('the change of the pod', () => changedPods.length > 0);
  assert.deepEqual(changedPods, ['p']);
  const [reported] = manager.deviceHealth(pod.metadata.uid, 'main') ?? [];
  assert.equal(reported?.name, GPU);
  assert.deepEqual(
    reported?.resources?.toSorted((left, right) => (left.resourceID < right.resourceID ? -1 : 1)),
    [
      { resourceID: 'a', health: 'Unhealthy' },
      { resourceID: 'b', health: 'Healthy' },
    ],
  );
});

test('after a restart containers keep their devices, and the node has none until the plugin reconnects', async (t) => {
  const first = await setUp(t);
  await first.plugin({ devices: healthy({ a: 0, b: 1 }) });
  const pod = gpuPod('p', 1);
  await admit(first.manager, pod);
  const text = await readFile(join(first.directory, 'kubelet_internal_checkpoint'), 'utf8');
  assert.match(
    text,
    /^\{"Data":\{"PodDeviceEntries":\[\{"PodUID":"p","ContainerName":"main","ResourceName":"example.com\/gpu","DeviceIDs":\{"[01]":\["[ab]"\]\},"AllocResp":"[\w+/=]+"\}\],"RegisteredDevices":\{"example.com\/gpu":\["a","b"\]\}\},"Checksum":\d+\}$/,
  );
  const again = await setUp(t, { directory: first.directory });
  assert.deepEqual(deviceIds(again.manager, 'p'), deviceIds(first.manager, 'p'));
  assert.deepEqual(again.manager.capacity(), { capacity: { [GPU]: '0' }, allocatable: { [GPU]: '0' } });
  const [container] = pod.spec.containers;
  assert.ok(container);
  assert.deepEqual([...(await again.manager.runOptions(pod, container)).env.keys()], ['DEVICES']);
  await assert.rejects(
    admit(again.manager, gpuPod('q', 1)),
    /no healthy devices present; cannot allocate unhealthy devices example.com\/gpu/,
  );
  await again.plugin({ devices: healthy({ a: 0, b: 1 }), socket: 'again.sock' });
  await admit(again.manager, gpuPod('q', 1));
  assert.notDeepEqual(deviceIds(again.manager, 'q'), deviceIds(again.manager, 'p'));
});

test('a plugin that registers through the plugin watcher is added and removed', async (t) => {
  const { manager, directory } = await setUp(t);
  const gpus = new FakeDevicePlugin({ directory, devices: healthy({ a: undefined }) });
  await gpus.serve();
  t.after(() => gpus.close());
  const handler = manager.handler();
  const plugin = { name: GPU, endpoint: gpus.socket, supportedVersions: ['v1beta1'] };
  assert.throws(() => handler.validate({ ...plugin, supportedVersions: ['v9'] }), /is not supported by kubelet/);
  handler.validate(plugin);
  await handler.register(plugin, new AbortController().signal);
  await until('the change of what is allocatable', () => manager.capacity().allocatable[GPU] === '1');
  await handler.deregister(GPU, gpus.socket);
  assert.deepEqual(manager.capacity(), { capacity: { [GPU]: '1' }, allocatable: { [GPU]: '0' } });
});
