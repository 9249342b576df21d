/** Tests device plugins, and files in their directory, that try to harm the agent or the API server. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { DeviceManager } from '../../../../../agent/resources/managers/devicemanager/device-manager.ts';
import {
  CHECKPOINT_NAME,
  deviceCheckpoint,
} from '../../../../../agent/resources/managers/devicemanager/device-checkpoint.ts';
import { serveRegistration } from '../../../../../agent/resources/managers/devicemanager/registration-server.ts';
import { DEVICE_MESSAGES, REGISTRATION_METHODS } from '../../../../../agent/resources/managers/devicemanager/schema.ts';
import { connectGrpc } from '../../../../../api/grpc/grpc-client.ts';
import { FakeDevicePlugin, type FakePluginOptions, healthy } from '../../../../fakes/device-plugin.ts';
import { type Logger, silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { resourcePod } from '../../../../fakes/resource-pod.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const GPU = 'example.com/gpu';
const gpuPod = (uid: string) => resourcePod(uid, [{ limits: { [GPU]: '1' } }]);

async function setUp(t: TestContext, prepare?: (directory: string) => Promise<void>) {
  const directory = temporaryFolder();
  await prepare?.(directory);
  const abort = new AbortController();
  const clock = new FakeClock();
  const lines: string[] = [];
  const note = (fields: unknown, message?: string): void => {
    const { err } = fields as { err?: Error };
    lines.push(`${message} ${err?.message}`);
  };
  const logger: Logger = { ...silentLogger, error: note, warn: note } as Logger;
  const manager = await DeviceManager.start({
    directory,
    clock,
    logger,
    numaNodes: [0, 1],
    affinity: { affinity: () => ({ affinity: undefined, preferred: false }) },
    onNodeChange: () => undefined,
    onPodsChange: () => undefined,
    observe: () => undefined,
  });
  const close = await serveRegistration({ directory, devices: manager, logger, signal: abort.signal });
  t.after(async () => {
    abort.abort();
    await close();
  });
  const serve = async (of: Omit<FakePluginOptions, 'directory'>): Promise<FakeDevicePlugin> => {
    const plugin = new FakeDevicePlugin({ directory, ...of });
    await plugin.serve();
    t.after(() => plugin.close());
    return plugin;
  };
  const admit = async (uid: string, startTime?: string): Promise<ReturnType<typeof gpuPod>> => {
    const pod = { ...gpuPod(uid), ...(startTime === undefined ? {} : { status: { startTime } }) };
    for (const container of pod.spec.containers)
      if (manager.wants(pod, container)) await manager.allocate(pod, container);
    return pod;
  };
  const allocatable = (count: number) =>
    until('the devices', () => manager.capacity().allocatable[GPU] === String(count));
  return { clock, directory, manager, lines, serve, admit, allocatable, signal: abort.signal };
}

describe('a hostile device plugin', { timeout: 60_000 }, () => {
  it('that sends lists without end is read ten times per second, and its last list counts', async (t) => {
    const { clock, manager, serve } = await setUp(t);
    const plugin = await serve({ devices: healthy({ first: undefined }) });
    await plugin.register(GPU);
    await until('the first list', () => manager.capacity().allocatable[GPU] === '1');
    for (let round = 0; round < 200; round++) plugin.change(healthy({ first: undefined, [`d${round}`]: undefined }));
    plugin.change(healthy({ a: 0, b: 0, c: 1 }));
    await until('the last list', async () => {
      await clock.advance(1000);
      return manager.capacity().allocatable[GPU] === '3';
    });
    assert.ok(clock.monotonic() >= 19_000, `after ${clock.monotonic()} ms`);
  });

  for (const name of [
    `${'a'.repeat(254)}/gpu`,
    `example.com/${'g'.repeat(64)}`,
    'a..b/gpu',
    `${'a.'.repeat(2000)}b/gpu`,
    'example.com/gpu/more',
    'x.kubernetes.io/gpu',
    'requests.example.com/gpu',
  ])
    it(`gets no resource of the name ${name.slice(0, 20)}… of ${name.length} characters`, async (t) => {
      const { serve } = await setUp(t);
      const plugin = await serve({ devices: [] });
      await assert.rejects(plugin.register(name), /is invalid/);
    });

  for (const endpoint of ['../../../../../../run/other.sock', '/../../../run/other.sock', '..', '', 'a\0b'])
    it(`is not called at the endpoint ${JSON.stringify(endpoint)}, outside of the folder of device plugins`, async (t) => {
      const { directory, manager } = await setUp(t);
      const client = await connectGrpc({
        socket: join(directory, 'kubelet.sock'),
        messages: DEVICE_MESSAGES,
        methods: REGISTRATION_METHODS,
      });
      t.after(() => client.close());
      const request = { version: 'v1beta1', endpoint, resourceName: GPU };
      await assert.rejects(
        client.call('register', request, { timeoutMs: 20_000 }),
        /is not in the directory of device plugins/,
      );
      assert.deepEqual(manager.capacity().capacity, {});
    });

  it('registers 256 resources at most, so that the node object stays small', async (t) => {
    const { manager, serve, signal } = await setUp(t);
    const { socket } = await serve({ devices: healthy({ a: undefined }) });
    for (let batch = 0; batch < 300; batch += 30)
      await Promise.allSettled(
        Array.from({ length: 30 }, (_, index) => manager.connect(`example.com/r${batch + index}`, socket, signal)),
      );
    await assert.rejects(manager.connect('example.com/last', socket, signal), /256 resources/);
    assert.equal(Object.keys(manager.capacity().capacity).length, 256);
  });

  it('lists NUMA nodes that the host does not have, which cost nothing, and any health, which is unhealthy', async (t) => {
    const { manager, serve, admit, allocatable } = await setUp(t);
    const nodes = [{ id: 900_000_000 }, { id: -1 }, { id: 2 ** 52 }, { id: 1 }];
    const plugin = await serve({
      devices: [
        { id: 'a', health: 'Healthy', topology: { nodes } },
        { id: 'b', health: 'x'.repeat(100_000) },
      ],
    });
    await plugin.register(GPU);
    await allocatable(1);
    const pod = gpuPod('p');
    assert.deepEqual(
      manager.containerHints(pod, pod.spec.containers[0] as never)[GPU]?.map(({ affinity }) => affinity),
      [2n, 3n],
    );
    await admit('p');
    plugin.change([{ id: 'a', health: 'on fire' }]);
    await allocatable(0);
    assert.deepEqual(manager.deviceHealth('p', 'main'), [
      { name: GPU, resources: [{ resourceID: 'a', health: 'Unhealthy' }] },
    ]);
  });

  for (const [what, devices] of [
    ['more devices than the agent accepts', Array.from({ length: 100_001 }, (_, index) => ({ id: `${index}` }))],
    ['an id that no status can show', [{ id: 'x'.repeat(300) }]],
    ['an id with a NUL', [{ id: 'a\0b' }]],
  ] as const)
    it(`that lists ${what} is disconnected`, async (t) => {
      const { manager, serve, allocatable, lines } = await setUp(t);
      const plugin = await serve({ devices: healthy({ a: undefined }) });
      await plugin.register(GPU);
      await allocatable(1);
      plugin.change(devices.map((device) => ({ ...device, health: 'Healthy' })));
      await allocatable(0);
      assert.equal(manager.capacity().capacity[GPU], '1');
      assert.ok(lines.some((line) => line.includes('the plugin lists')));
    });

  for (const [what, answer, message] of [
    ['of megabytes', { envs: { A: 'x'.repeat(300_000) } }, /more than 262144 bytes/],
    ['with a NUL', { mounts: [{ containerPath: '/a', hostPath: '/b\0c', readOnly: false }] }, /NUL/],
  ] as const)
    it(`gives an allocation response ${what}, and the pod is refused`, async (t) => {
      const { manager, serve, allocatable, admit } = await setUp(t);
      const plugin = await serve({ devices: healthy({ a: undefined }), allocate: () => answer });
      await plugin.register(GPU);
      await allocatable(1);
      await assert.rejects(admit('p'), message);
      assert.deepEqual(manager.pods(), []);
    });
});

describe('a checkpoint of devices', { timeout: 60_000 }, () => {
  for (const [what, plant] of [
    ['a FIFO', (path: string) => Promise.resolve(void execFileSync('mkfifo', [path]))],
    ['a link to a file of the host', (path: string) => symlink('/etc/passwd', path)],
    ['a directory', (path: string) => mkdir(path)],
    ['half written', (path: string) => writeFile(path, '{"Data":{"PodDeviceEntries":[{"PodUID":"u","Cont')],
    ['empty', (path: string) => writeFile(path, '')],
    ['of other types', (path: string) => writeFile(path, '{"Data":{"PodDeviceEntries":7},"Checksum":0}')],
  ] as const)
    it(`that is ${what} is reported at once, and no device of running pods is given to another pod`, async (t) => {
      const { manager, lines, serve, allocatable, admit } = await setUp(t, (directory) =>
        plant(join(directory, CHECKPOINT_NAME)),
      );
      assert.ok(lines.some((line) => line.includes('Cannot read the checkpoint of devices')));
      const running = await admit('old', '2026-01-01T00:00:00Z');
      const plugin = await serve({ devices: healthy({ a: undefined, b: undefined }) });
      await plugin.register(GPU);
      await allocatable(2);
      await assert.rejects(admit('new'), /not known since the checkpoint of devices could not be read; delete .*old/);
      await assert.rejects(manager.runOptions(running, running.spec.containers[0] as never), /delete .*old/);
      manager.release('old');
      await admit('new');
      assert.deepEqual(manager.pods(), ['new']);
    });

  it('that names resources which no plugin can have takes nothing from the node', async (t) => {
    const { manager } = await setUp(t, (directory) =>
      writeFile(
        join(directory, CHECKPOINT_NAME),
        JSON.stringify(deviceCheckpoint([], { cpu: [], memory: [], 'x.kubernetes.io/a': [], [GPU]: [] })),
      ),
    );
    assert.deepEqual(Object.keys(manager.capacity().capacity), [GPU]);
  });
});

it(
  'a directory in the place of the socket of the agent does not keep it from serving',
  { timeout: 60_000 },
  async (t) => {
    const { serve, allocatable } = await setUp(t, async (directory) => {
      await mkdir(join(directory, 'kubelet.sock', 'full'), { recursive: true });
    });
    const plugin = await serve({ devices: healthy({ a: undefined }) });
    await plugin.register(GPU);
    await allocatable(1);
  },
);
