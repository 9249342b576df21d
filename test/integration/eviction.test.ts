/**
 * Tests a node under real pressure on both runtimes. A pod fills the memory cgroup of all pods, and another one fills the small
 * file system of the agent's directory. Checks which pods are evicted, how it is reported, which pods stay, and that the
 * pressure ends.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { RunningCluster, run } from './running-cluster.ts';
import { Ended, until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const MIB = 1024 * 1024;
/** The memory of all pods together, and the eviction threshold. */
const FOR_PODS_MIB = 500;
const MIN_MEMORY = '100Mi';
/** Allocates memory once a file exists: dd keeps one block and waits for a reader that never reads. */
const FILL_MEMORY =
  'until [ -f /tmp/go ]; do sleep 1; done; mkfifo /tmp/f; sleep 1000 </tmp/f & exec dd if=/dev/zero bs=430M count=1 of=/tmp/f';
/** The size of the agent's file system, and the eviction threshold. */
const DISK_MIB = 300;
const MIN_DISK = '120Mi';
const WRITTEN_MIB = 200;

const noLoopDevice = spawnSync('losetup', ['-f']).status === 0 ? false : 'losetup finds no free device';

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason?: string;
  readonly message?: string;
}

/** Mounts a small file system as the agent's directory. */
function mountSmallDisk(directory: string): void {
  const [disk, root] = [join(directory, 'disk'), join(directory, 'agent')];
  mkdirSync(root);
  run('truncate', ['-s', `${DISK_MIB}M`, disk]);
  run('mkfs.ext4', ['-q', disk]);
  run('mount', ['-o', 'loop', disk, root]);
}

for (const [on, skip, cidr] of [
  ['docker', skipWithoutDocker, '10.109.0.0/17'],
  ['containerd', skipWithoutContainerd, '10.109.128.0/17'],
] as const) {
  describe(`a node that runs short, on ${on}`, { skip: skip === false ? noLoopDevice : skip, timeout: 280_000 }, () => {
    let cluster: RunningCluster;

    const podOf = (name: string, command: string, more: { volume?: object; resources?: object }): object => ({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name },
      spec: {
        terminationGracePeriodSeconds: 0,
        volumes: more.volume === undefined ? [] : [{ name: 'v', emptyDir: more.volume }],
        containers: [
          {
            name: 'c',
            image: DEMO_IMAGE,
            command: ['sh', '-c', command],
            resources: more.resources ?? {},
            volumeMounts: more.volume === undefined ? [] : [{ name: 'v', mountPath: '/v' }],
          },
        ],
      },
    });
    const apply = (...pods: object[]): string =>
      cluster.run(['apply', '-f', '-'], { input: JSON.stringify({ apiVersion: 'v1', kind: 'List', items: pods }) });
    const get = (args: string, path: string): string =>
      cluster.run(['get', ...args.split(' '), '-o', `jsonpath=${path}`]);
    const condition = (args: string, type: string): Condition | undefined =>
      (JSON.parse(get(args, '{..status.conditions}') || '[]') as Condition[]).find((entry) => entry.type === type);
    const phase = (name: string): string => get(`pod ${name}`, '{.status.phase}');
    const running = (name: string): Promise<true> =>
      until(`${name} to run`, () => phase(name) === 'Running' || undefined);
    const evicted = (name: string): Promise<true> =>
      until(`the eviction of ${name}`, () => {
        const now = phase(name);
        if (now === 'Succeeded') throw new Ended(`${name} ended by itself`);
        return now === 'Failed' || undefined;
      });
    const calm = (type: string, taint: string): Promise<true> =>
      until('the pressure to pass', () => {
        const taints = get('nodes', '{.items[0].spec.taints[*].key}').split(' ');
        return (condition('nodes', type)?.status === 'False' && !taints.includes(taint)) || undefined;
      });

    before(async () => {
      const reservedMib = Math.floor(totalmem() / MIB) - FOR_PODS_MIB;
      const flags = [
        ...['--cluster-cidr', cidr, '--cgroup-root', `/orchlet-eviction-${on}`],
        ...['--system-reserved', `memory=${reservedMib}Mi`, '--agent-arg', 'eviction-pressure-transition-period=1s'],
        ...['--eviction-hard', `memory.available<${MIN_MEMORY},nodefs.available<${MIN_DISK}`],
      ];
      cluster = await RunningCluster.start(flags, on, { prepare: mountSmallDisk });
      await until(
        'the service account',
        () => cluster.kubectl(['get', 'serviceaccount', 'default']).code === 0 || undefined,
      );
    });
    after(async () => {
      await cluster?.remove();
      // Only empty cgroups are removed. A pod's cgroup may be in use for another moment.
      for (const left of globSync(join('/sys/fs/cgroup', '{.,*}', `orchlet-eviction-${on}`)))
        spawnSync('find', [left, '-depth', '-type', 'd', '-exec', 'rmdir', '{}', ';']);
    });

    test('under memory pressure, the pod above its request is evicted, and the one below it stays', async () => {
      const modest = { requests: { memory: '30Mi' }, limits: { memory: '60Mi' } };
      apply(
        podOf('modest', 'sleep 1000', { resources: modest }),
        podOf('hog', FILL_MEMORY, { resources: { requests: { memory: '10Mi' } } }),
      );
      await running('modest');
      await running('hog');
      cluster.run(['exec', 'hog', '--', 'touch', '/tmp/go']);
      await evicted('hog');
      assert.equal(get('pod hog', '{.status.reason}'), 'Evicted');
      assert.match(
        get('pod hog', '{.status.message}'),
        /^The node was low on resource: memory\. Threshold quantity: 100Mi, available: \S+i?\. Container c was using \S+, request is 10Mi, has larger consumption of memory\. $/,
      );
      const disruption = condition('pod hog', 'DisruptionTarget');
      assert.deepEqual([disruption?.status, disruption?.reason], ['True', 'TerminationByKubelet']);
      await until(
        'the event',
        () => get('events --field-selector reason=Evicted,involvedObject.name=hog', '{.items[*].type}') === 'Warning',
      );
      await calm('MemoryPressure', 'node.kubernetes.io/memory-pressure');
      const events = (reason: string): string =>
        get(`events --field-selector involvedObject.kind=Node,reason=${reason}`, '{.items[*].message}');
      await until('the events of the node', () =>
        ['NodeHasInsufficientMemory', 'EvictionThresholdMet', 'NodeHasSufficientMemory'].every((one) => events(one)),
      );
      assert.equal(phase('modest'), 'Running');
      assert.equal(get('pod modest', '{.status.containerStatuses[0].restartCount}'), '0');
    });

    test('under disk pressure, the pod with the highest usage is evicted, and its files are removed', async () => {
      apply(
        podOf('writer', `dd if=/dev/zero of=/v/big bs=1M count=${WRITTEN_MIB} 2>/dev/null; sleep 1000`, {
          volume: {},
        }),
      );
      await evicted('writer');
      assert.equal(get('pod writer', '{.status.reason}'), 'Evicted');
      assert.match(get('pod writer', '{.status.message}'), /^The node was low on resource: ephemeral-storage\. /);
      await calm('DiskPressure', 'node.kubernetes.io/disk-pressure');
      assert.equal(phase('modest'), 'Running');
    });

    test('an emptyDir above its size limit causes the eviction of its own pod, and of no other', async () => {
      apply(
        podOf('above', 'dd if=/dev/zero of=/v/big bs=1M count=20 2>/dev/null; sleep 1000', {
          volume: { sizeLimit: '8Mi' },
        }),
      );
      await evicted('above');
      assert.equal(get('pod above', '{.status.message}'), 'Usage of EmptyDir volume "v" exceeds the limit "8Mi". ');
      assert.equal(phase('modest'), 'Running');
    });
  });
}
