/**
 * Tests exclusive CPUs and devices of a plugin in a cluster on real containers: the processes' settings in the kernel, and the
 * reports of the node and the pods. Both survive a killed agent. Memory of NUMA nodes is tested by unit tests only: the agent
 * refuses its state file on a host whose memory has changed, and the memory of a virtual machine may change at any time.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseCpuSet } from '../../agent/resources/managers/cpu-set.ts';
import { connectGrpc } from '../../api/grpc/grpc-client.ts';
import { POD_RESOURCES_MESSAGES, POD_RESOURCES_METHODS } from '../../agent/resources/podresources/schema.ts';
import { FakeDevicePlugin, healthy } from '../fakes/device-plugin.ts';
import { skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { RunningCluster } from './running-cluster.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const DEVICE = 'example.com/thing';
const online = parseCpuSet(readFileSync('/sys/devices/system/cpu/online', 'utf8'));
const tooFew = online.size < 2 ? 'one processor cannot be shared out' : false;

for (const [on, skip, cidr] of [
  ['docker', skipWithoutDocker, '10.106.0.0/17'],
  ['containerd', skipWithoutContainerd, '10.106.128.0/17'],
] as const) {
  describe(
    `exclusive resources of containers on ${on}`,
    { skip: skip === false ? tooFew : skip, timeout: 280_000 },
    () => {
      let cluster: RunningCluster;
      let plugin: FakeDevicePlugin | undefined;

      const podOf = (name: string, resources: object, command = 'sleep 1000'): object => ({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name },
        spec: {
          terminationGracePeriodSeconds: 0,
          containers: [{ name: 'c', image: DEMO_IMAGE, command: ['sh', '-c', command], resources }],
        },
      });
      const apply = (...pods: object[]): string =>
        cluster.run(['apply', '-f', '-'], { input: JSON.stringify({ apiVersion: 'v1', kind: 'List', items: pods }) });
      const get = (args: string, path: string): string =>
        cluster.run(['get', ...args.split(' '), '-o', `jsonpath=${path}`]);
      const running = (name: string): Promise<true> =>
        until(`${name} to run`, () => get(`pod ${name}`, '{.status.phase}') === 'Running' || undefined);
      const allowed = (name: string): ReadonlySet<number> => {
        const line = cluster.run(['exec', name, '--', 'grep', 'Cpus_allowed_list', '/proc/self/status']);
        return parseCpuSet(line.split(':')[1] ?? '');
      };
      const gone = (name: string): void =>
        void cluster.run(['delete', 'pod', name, '--wait=true', '--timeout=60s'], { timeoutMs: 70_000 });
      const onNode = (list: 'capacity' | 'allocatable'): string =>
        get('nodes', `{.items[0].status.${list}.${DEVICE.replaceAll('.', '\\.')}}`);
      /** Registers the plugin once the agent accepts it, because the agent may still be starting. */
      const register = (to: FakeDevicePlugin): Promise<true> =>
        until('the registration', async () => {
          await to.register(DEVICE);
          return true as const;
        });
      const devices = (): string => join(cluster.directory, 'agent/device-plugins');

      /** Returns the directories with this name below this agent's cgroup root, one in each hierarchy. */
      const cgroups = (path: string): string[] =>
        globSync(join('/sys/fs/cgroup', '{.,*}', `orchlet-resources-${on}`, path)).toSorted();

      before(async () => {
        cluster = await RunningCluster.start(
          [
            ...['--cluster-cidr', cidr, '--cgroup-root', `/orchlet-resources-${on}`],
            ...['--cpu-manager-policy', 'static', '--reserved-cpus', String(Math.min(...online))],
            ...['--cpu-manager-reconcile-period', '1s', '--topology-manager-policy', 'best-effort'],
          ],
          on,
        );
        await until(
          'the service account',
          () => cluster.kubectl(['get', 'serviceaccount', 'default']).code === 0 || undefined,
        );
      });
      after(async () => {
        await plugin?.close();
        await cluster?.remove();
        // Only empty cgroups are removed. A pod's cgroup may be in use for another moment.
        for (const directory of cgroups(''))
          spawnSync('find', [directory, '-depth', '-type', 'd', '-exec', 'rmdir', '{}', ';']);
      });

      test('a Guaranteed container has an exclusive CPU without a quota', async () => {
        assert.equal(get('nodes', '{.items[0].status.allocatable.cpu}'), String(online.size - 1));
        apply(podOf('shared', {}));
        await running('shared');
        assert.deepEqual(allowed('shared'), online);
        apply(podOf('mine', { limits: { cpu: '1', memory: '64Mi' } }));
        await running('mine');
        const mine = allowed('mine');
        assert.equal(mine.size, 1);
        assert.ok(!mine.has(Math.min(...online)), 'not the reserved one');
        const rest = online.difference(mine);
        await until('the other containers to be moved', () => allowed('shared').isSubsetOf(rest) || undefined);
        const quota = 'cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null';
        assert.match(cluster.run(['exec', 'mine', '--', 'sh', '-c', `${quota}; true`]), /^(-1|max )/);
        const uid = get('pod mine', '{.metadata.uid}');
        const own = cgroups(join('kubepods', `pod${uid}`));
        assert.ok(own.length > 0, 'its cgroup stands below the root of this agent');
        const state = JSON.parse(readFileSync(join(cluster.directory, 'agent/cpu_manager_state'), 'utf8')) as {
          entries: Record<string, Record<string, string>>;
        };
        assert.deepEqual(parseCpuSet(state.entries[uid]?.['c'] ?? ''), mine);
      });

      test('containers keep their CPUs when the agent is killed and restarted', async () => {
        const mine = allowed('mine');
        const id = get('pod mine', '{.status.containerStatuses[0].containerID}');
        await cluster.stop('SIGKILL');
        await cluster.launch();
        const now = await until('the agent to be back', () => allowed('mine'));
        assert.deepEqual(now, mine);
        assert.equal(get('pod mine', '{.status.containerStatuses[0].containerID}'), id);
        gone('mine');
        await until('the processor to be shared again', () => allowed('shared').isSupersetOf(online) || undefined);
      });

      test('the node reports the devices of a plugin, and a container gets the device that the plugin allocates', async () => {
        plugin = new FakeDevicePlugin({
          directory: devices(),
          devices: healthy({ first: 0, second: undefined }),
          options: { preStartRequired: true },
          allocate: (ids) => ({
            envs: { THINGS: ids.join(',') },
            mounts: [{ containerPath: '/things', hostPath: cluster.directory, readOnly: true }],
            devices: [{ containerPath: '/dev/thing', hostPath: '/dev/null', permissions: 'rw' }],
            annotations: { 'example.com/things': ids.join(',') },
          }),
        });
        await plugin.serve();
        await register(plugin);
        await until('the devices', () => onNode('allocatable') === '2' || undefined);
        apply(podOf('user', { limits: { [DEVICE]: '1' } }));
        await running('user');
        const script = 'echo $THINGS; test -c /dev/thing && echo device; test -d /things/agent && echo mount';
        const output = cluster.run(['exec', 'user', '--', 'sh', '-c', script]).trim().split('\n');
        assert.deepEqual(output.slice(1), ['device', 'mount']);
        assert.deepEqual(plugin.allocated, [[output[0]]]);
        assert.deepEqual(plugin.preStarted, [[output[0]]]);
        const status = '{.status.containerStatuses[0].allocatedResourcesStatus}';
        await until(
          'the health of the device',
          () =>
            get('pod user', status) ===
              `[{"name":"${DEVICE}","resources":[{"health":"Healthy","resourceID":"${output[0]}"}]}]` || undefined,
        );
        plugin.change(
          [...healthy({ first: 0, second: undefined })].map((device) => ({ ...device, health: 'Unhealthy' })),
        );
        await until(
          'the unhealthy device in the status of the pod',
          () => get('pod user', status).includes('Unhealthy') || undefined,
        );
        await until(
          'the device to be unavailable on the node',
          () => (onNode('allocatable') === '0' && onNode('capacity') === '2') || undefined,
        );
        const client = await connectGrpc({
          socket: join(cluster.directory, 'agent/pod-resources/kubelet.sock'),
          messages: POD_RESOURCES_MESSAGES,
          methods: POD_RESOURCES_METHODS,
        });
        const { podResources } = await client.call(
          'get',
          { podName: 'user', podNamespace: 'default' },
          { timeoutMs: 20_000 },
        );
        client.close();
        assert.deepEqual(
          podResources?.containers[0]?.devices.map(({ deviceIds }) => deviceIds),
          [[output[0]]],
        );
      });

      test('a container keeps its device when the agent is killed and restarted, and the plugin registers again', async () => {
        assert.ok(plugin);
        plugin.change(healthy({ first: 0, second: undefined }));
        const id = get('pod user', '{.status.containerStatuses[0].containerID}');
        await cluster.stop('SIGKILL');
        await cluster.launch();
        await until('an empty node', () => onNode('capacity') === '0' || undefined);
        // The socket was removed, so the plugin creates a new one and registers again.
        await plugin.close();
        await plugin.serve();
        await register(plugin);
        await until('the devices', () => onNode('allocatable') === '2' || undefined);
        assert.equal(get('pod user', '{.status.containerStatuses[0].containerID}'), id);
        apply(podOf('third', { limits: { [DEVICE]: '1' } }));
        await running('third');
        const things = ['user', 'third'].map((name) =>
          cluster.run(['exec', name, '--', 'sh', '-c', 'echo $THINGS']).trim(),
        );
        assert.deepEqual(things.toSorted(), ['first', 'second']);
        for (const name of ['user', 'third', 'shared']) gone(name);
      });
    },
  );
}
