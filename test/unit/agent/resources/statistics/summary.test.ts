/** `/stats/summary` has every value that was recorded from the kubelet, and the system containers. */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { createCgroupReader } from '../../../../../agent/resources/statistics/cgroup-reader.ts';
import { summaryOf } from '../../../../../agent/resources/statistics/summary.ts';
import { ownCgroup, SystemContainers } from '../../../../../agent/resources/statistics/system-containers.ts';
import { UsageCollector } from '../../../../../agent/resources/statistics/usage.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { type Tree, v1, v2, withTree } from './cgroup-fixture.ts';

const ID = 'c0ffee0123456789';
const PARENT = '/kubepods/burstable/podu1';
const POD = {
  metadata: { name: 'web', namespace: 'shop', uid: 'u1' },
  spec: { containers: [{ name: 'main', image: 'busybox' }] },
  status: {
    startTime: '2026-01-02T03:00:00Z',
    containerStatuses: [
      {
        name: 'main',
        image: 'busybox:1',
        containerID: `containerd://${ID}`,
        state: { running: { startedAt: '2026-01-02T03:00:01Z' } },
      },
    ],
  },
} as unknown as Pod;
const DISK = { capacityBytes: 100, availableBytes: 60, usedBytes: 40, inodes: 10, inodesFree: 4, device: 1 };
const PART = { filesystem: DISK, used: { usedBytes: 5, inodesUsed: 2 } };
const INTERFACE = { name: 'eth0', rxBytes: 1, rxPackets: 1, rxErrors: 0, rxDropped: 0 };

interface Shown {
  readonly node: {
    readonly systemContainers: readonly {
      readonly name: string;
      readonly startTime: string;
      readonly memory: object;
    }[];
  };
  readonly pods: readonly { readonly containers: readonly { readonly swap: object; readonly memory: object }[] }[];
}

/** Returns the summary of one pod on a host with these cgroups. It is read twice, so that there are rates. */
async function summary(tree: Tree, own: string): Promise<Shown> {
  return withTree({ ...tree, own }, async (directory) => {
    const clock = new FakeClock();
    const reader = await createCgroupReader(directory, join(directory, 'meminfo'));
    const collector = new UsageCollector({
      reader,
      runtime: { containerStats: () => Promise.resolve([]) },
      clock,
      pods: () => [POD],
      cgroupParent: () => PARENT,
      allPodsCgroup: '/kubepods',
      procDirectory: directory,
    });
    const system = new SystemContainers({
      reader,
      clock,
      runtimeCgroup: '/system.slice/containerd.service',
      ownCgroupFile: join(directory, 'own'),
    });
    await collector.snapshot(0);
    await system.usage();
    await clock.advance(10_000);
    return summaryOf({
      nodeName: 'n',
      bootedAtMs: 0,
      memoryCapacityBytes: 1_000_000,
      swapCapacityBytes: 0,
      interfaces: [{ ...INTERFACE, txBytes: 1, txPackets: 1, txErrors: 0, txDropped: 0 }],
      defaultInterface: 'eth0',
      processes: { current: 3, max: 100 },
      usage: await collector.snapshot(0),
      system: await system.usage(),
      storage: {
        node: { root: DISK, images: PART, containers: PART },
        pods: new Map([
          [
            'u1',
            {
              containers: new Map([['main', { layer: PART.used, logs: PART.used }]]),
              volumes: [],
              ephemeral: PART.used,
            },
          ],
        ]),
      },
    }) as Shown;
  });
}

function pathsOf(value: unknown, path = ''): readonly string[] {
  if (Array.isArray(value)) return value.flatMap((entry) => pathsOf(entry, `${path}[]`));
  if (typeof value !== 'object' || value === null) return [path];
  return Object.entries(value).flatMap(([key, entry]) => pathsOf(entry, path === '' ? key : `${path}.${key}`));
}

const LIMITED = {
  [`memory${PARENT}/${ID}/memory.limit_in_bytes`]: '1048576\n',
  [`memory${PARENT}/${ID}/memory.memsw.limit_in_bytes`]: '1048576\n',
};
const SIZES = { cpuNs: 9_000_000_000, memory: 900_000, inactive: 100_000 };
const controllers = {
  ...Object.assign({}, ...['', '/kubepods', PARENT, `${PARENT}/${ID}`].map((path) => v1(path, SIZES))),
  ...LIMITED,
} as Tree;
const agentOnV1 = '9:memory:/system.slice/orchlet.service\n4:cpu,cpuacct:/system.slice/orchlet.service\n';

describe('/stats/summary', () => {
  it('has every value that the kubelet shows', async () => {
    const recorded = JSON.parse(
      await readFile(join(import.meta.dirname, 'reference-summary.json'), 'utf8'),
    ) as readonly string[];
    const shown = new Set(pathsOf(await summary(controllers, agentOnV1)));
    assert.deepEqual(
      recorded.filter((path) => !shown.has(path)),
      [],
    );
    // The recording host had no values for the process counts of cgroups.
    assert.deepEqual(
      [...shown].filter((path) => !recorded.includes(path)),
      ['pods[].process_stats.process_count'],
    );
  });

  it('shows the agent and the runtime, without a limit that they do not have', async () => {
    const sizes = { cpuUs: 9_000, memory: 900_000, inactive: 0 };
    const services = ['/system.slice/orchlet.service', '/system.slice/containerd.service'];
    const tree: Tree = {
      'cgroup.controllers': 'cpu memory',
      ...Object.assign({}, ...['', '/kubepods', PARENT, `${PARENT}/${ID}`].map((path) => v2(path, sizes))),
      ...Object.assign({}, ...services.map((path) => v2(path, { ...sizes, memory: 7_000_000 }))),
      [`${services[0]}/memory.max`]: 'max\n',
    };
    const { node, pods } = await summary(tree, '0::/system.slice/orchlet.service\n');
    assert.deepEqual(
      node.systemContainers.map(({ name, memory }) => [
        name,
        (memory as { usageBytes?: number }).usageBytes,
        'availableBytes' in memory,
      ]),
      [
        ['kubelet', 7_000_000, false],
        ['runtime', 7_000_000, true],
        ['pods', 900_000, true],
      ],
    );
    const startedAtMs = node.systemContainers.map(({ startTime }) => Date.parse(startTime));
    assert.ok(
      startedAtMs.every((time) => time > 0),
      'they start when their cgroup is created, not with the host',
    );
    assert.partialDeepStrictEqual(pods, [{ containers: [{ swap: { swapAvailableBytes: 0 } }] }]);
  });

  for (const [title, text, path] of [
    ['of v2', '0::/system.slice/a.service\n', '/system.slice/a.service'],
    ['of v1', agentOnV1, '/system.slice/orchlet.service'],
    ['that CPU and memory do not share', '3:memory:/a\n2:cpu,cpuacct:/b\n0::/c\n', ''],
    ['outside of the namespace', '0::/../b\n', ''],
    ['of the whole host', '0::/\n', '/'],
    ['of a host without cgroups', '', ''],
  ] as const)
    it(`finds the agent's cgroup ${title}`, () => assert.equal(ownCgroup(text), path));

  it('counts an agent in the root cgroup as no system container', async () => {
    await withTree(controllers, async (directory) => {
      await writeFile(join(directory, 'own'), '9:memory:/\n4:cpu,cpuacct:/\n');
      const system = new SystemContainers({
        reader: await createCgroupReader(directory),
        clock: new FakeClock(),
        runtimeCgroup: '',
        ownCgroupFile: join(directory, 'own'),
      });
      assert.deepEqual(await system.usage(), []);
    });
  });
});
