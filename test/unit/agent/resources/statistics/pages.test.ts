import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { cadvisorMetrics } from '../../../../../agent/resources/statistics/cadvisor-metrics.ts';
import { createCgroupReader } from '../../../../../agent/resources/statistics/cgroup-reader.ts';
import { resourceMetrics } from '../../../../../agent/resources/statistics/resource-metrics.ts';
import { summaryOf } from '../../../../../agent/resources/statistics/summary.ts';
import { UsageCollector } from '../../../../../agent/resources/statistics/usage.ts';
import type { Runtime } from '../../../../../agent/runtime/runtime.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { type Tree, v1, v2, withTree } from './cgroup-fixture.ts';

const ID = 'c0ffee0123456789';
const POD = {
  metadata: { name: 'web', namespace: 'shop', uid: 'u1' },
  spec: { containers: [{ name: 'main', image: 'busybox' }] },
  status: {
    startTime: '2026-01-02T03:00:00Z',
    containerStatuses: [
      {
        name: 'main',
        image: 'busybox:1',
        containerID: `docker://${ID}`,
        state: { running: { startedAt: '2026-01-02T03:00:01Z' } },
      },
    ],
  },
} as unknown as Pod;
const noRuntime: Pick<Runtime, 'containerStats'> = { containerStats: () => Promise.resolve([]) };
const podPath = '/kubepods/besteffort/podu1';

const tree = {
  ...v1('', { cpuNs: 9_000_000_000, memory: 900_000, inactive: 100_000 }),
  ...v1('/kubepods', { cpuNs: 3_000_000_000, memory: 300_000, inactive: 0 }),
  ...v1(podPath, { cpuNs: 2_000_000_000, memory: 200_000, inactive: 50_000 }),
  ...v1(`${podPath}/${ID}`, { cpuNs: 1_000_000_000, memory: 100_000, inactive: 50_000 }),
};

async function withCollector(
  work: (collector: UsageCollector, clock: FakeClock, directory: string) => Promise<void>,
  runtime = noRuntime,
  files: Tree = {},
): Promise<void> {
  await withTree({ ...tree, ...files }, async (directory) => {
    const clock = new FakeClock();
    const reader = await createCgroupReader(directory);
    const collector = new UsageCollector({
      reader,
      runtime,
      clock,
      pods: () => [POD],
      cgroupParent: () => podPath,
      allPodsCgroup: '/kubepods',
      procDirectory: directory,
    });
    await work(collector, clock, directory);
  });
}

describe('the usage of pods', () => {
  it("is found by the container's id below the pod's cgroup, and has a rate from the second snapshot", async () => {
    await withCollector(async (collector, clock, directory) => {
      const first = await collector.snapshot(0);
      assert.equal(first.pods[0]?.containers[0]?.usage.cpu.usageNs, 1_000_000_000);
      assert.equal(first.pods[0]?.containers[0]?.nanoCores, undefined);
      await writeFile(join(directory, `cpuacct${podPath}/${ID}/cpuacct.usage`), '3000000000\n');
      await clock.advance(10_000);
      const second = await collector.snapshot(0);
      assert.equal(second.pods[0]?.containers[0]?.nanoCores, 200_000_000);
    });
  });

  it('is read once for concurrent clients', async () => {
    await withCollector(async (collector, clock) => {
      const first = await collector.snapshot(5_000);
      await clock.advance(4_000);
      assert.equal(await collector.snapshot(5_000), first);
      await clock.advance(2_000);
      assert.notEqual(await collector.snapshot(5_000), first);
    });
  });

  it('comes from the runtime if the cgroup is not accessible', async () => {
    const stats = {
      id: ID,
      labels: {},
      timestampMs: 0,
      cpuUsageCoreNs: 7,
      memoryWorkingSetBytes: 11,
      memoryUsageBytes: 13,
      memoryRssBytes: 0,
      pageFaults: 0,
      majorPageFaults: 0,
      writableLayerBytes: 0,
      writableLayerInodes: 0,
    };
    const runtime = { containerStats: () => Promise.resolve([stats]) } as unknown as typeof noRuntime;
    await withTree({}, async (directory) => {
      const collector = new UsageCollector({
        reader: await createCgroupReader(directory),
        runtime,
        clock: new FakeClock(),
        pods: () => [POD],
        cgroupParent: () => '',
        allPodsCgroup: '',
      });
      const { pods } = await collector.snapshot(0);
      assert.deepEqual([pods[0]?.usage.cpu.usageNs, pods[0]?.usage.memory.workingSetBytes], [7, 11]);
    });
  });
});

const FILESYSTEM = { capacityBytes: 100, availableBytes: 60, usedBytes: 40, inodes: 10, inodesFree: 4, device: 0x801 };
const COUNTERS = {
  ...{ reads: 11, readsMerged: 12, sectorsRead: 13, readMs: 14, writes: 15, writesMerged: 16, sectorsWritten: 17 },
  ...{ writeMs: 18, inProgress: 19, ioMs: 20, weightedIoMs: 21 },
};
const FACTS: Omit<Parameters<typeof cadvisorMetrics>[0], 'usage'> = {
  processes: new Map(),
  deviceNames: new Map([['8:0', '/dev/sda']]),
  storage: {
    node: {
      root: FILESYSTEM,
      images: { filesystem: FILESYSTEM, used: { usedBytes: 0, inodesUsed: 0 } },
      containers: { filesystem: FILESYSTEM, used: { usedBytes: 0, inodesUsed: 0 } },
    },
    pods: new Map(),
  },
  filesystems: [{ device: '/dev/sda1', space: FILESYSTEM, counters: COUNTERS }],
  interfaces: [],
  machine: {
    bootId: 'b',
    machineId: 'm',
    systemUuid: 's',
    cpus: 4,
    physicalCores: 2,
    sockets: 1,
    memoryBytes: 1,
    swapBytes: 0,
    kernelVersion: 'k',
    osVersion: 'o',
  },
  bootedAtMs: 0,
};

describe('the metrics endpoints', () => {
  it('have every metric of cAdvisor that was recorded from the kubelet', async () => {
    const recorded = JSON.parse(await readFile(join(import.meta.dirname, 'reference-metrics.json'), 'utf8')) as {
      readonly cadvisor: Readonly<Record<string, string>>;
    };
    const files = {
      [`cpu${podPath}/${ID}/cpu.cfs_quota_us`]: '50000\n',
      [`memory${podPath}/${ID}/cgroup.procs`]: '7\n0\n8\n',
      '7/net/dev': 'a\nb\n eth0: 1 2 3 4 0 0 0 0 5 6 7 8\n',
      '7/limits':
        'Limit   Soft Limit   Hard Limit   Units\nMax open files            1024                 4096                 files\n',
      '8/limits': '',
    };
    await withCollector(
      async (collector, _clock, directory) => {
        for (const [pid, target] of [
          ['7', 'socket:[1]'],
          ['7', '/dev/null'],
          ['8', 'socket:[2]'],
        ] as const) {
          await mkdir(join(directory, pid, 'fd'), { recursive: true });
          await symlink(target, join(directory, pid, 'fd', target.replaceAll('/', '_')));
        }
        const usage = await collector.snapshot(0);
        const text = cadvisorMetrics({ ...FACTS, usage, processes: await collector.processes(usage) });
        const written = new Set([...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name));
        const missing = Object.keys(recorded.cadvisor).filter((name) => !written.has(name));
        assert.deepEqual(missing, []);
        const ofMain = (name: string): string | undefined =>
          new RegExp(`^${name}\\{container="main",.*\\} (\\S+) \\d+$`, 'm').exec(text)?.[1];
        assert.deepEqual(
          ['processes', 'threads', 'file_descriptors', 'sockets', 'ulimits_soft'].map((name) =>
            ofMain(`container_${name}`),
          ),
          ['2', '5', '3', '2', '1024'],
        );
      },
      noRuntime,
      files,
    );
  });

  it('name the devices as dashboards select them', async () => {
    await withCollector(async (collector) => {
      const text = cadvisorMetrics({ ...FACTS, usage: await collector.snapshot(0) });
      assert.match(text, /^container_fs_reads_bytes_total\{container="main",device="\/dev\/sda",id=/m);
      assert.match(text, /^container_fs_limit_bytes\{container="",device="\/dev\/sda1",id="\/",/m);
    });
  });

  it('show the disks of the host with the root cgroup, and the processes directly in every cgroup', async () => {
    const cgroup = '/kubepods/besteffort';
    const files = { ...v1(cgroup, { cpuNs: 1, memory: 1, inactive: 0 }), 'memory/cgroup.procs': '7\n8\n' };
    await withCollector(
      async (collector) => {
        const usage = await collector.snapshot(0);
        const text = cadvisorMetrics({ ...FACTS, usage, processes: await collector.processes(usage) });
        const of = (id: string, name: string, device = ''): string | undefined =>
          new RegExp(
            `^${name}\\{container="",${device}id="${id}",image="",name="",namespace="",pod=""\\} (.*)$`,
            'm',
          ).exec(text)?.[1];
        const disk = 'device="/dev/sda1",';
        const at = usage.timeMs;
        assert.equal(of('/', 'container_fs_reads_merged_total', disk), `12 ${at}`);
        assert.equal(of('/', 'container_fs_io_current', disk), `19 ${at}`);
        assert.equal(of('/', 'container_fs_io_time_seconds_total', disk), `2e-08 ${at}`);
        assert.equal(of('/', 'container_processes'), `2 ${at}`);
        assert.equal(of(cgroup, 'container_processes'), `0 ${at}`);
        assert.equal(of(cgroup, 'container_health_state'), `-1 ${at}`);
        assert.equal(of('/', 'container_spec_memory_limit_bytes'), '1', 'settings have no time');
        assert.match(of(cgroup, 'container_start_time_seconds') ?? '', /^\S+$/);
      },
      noRuntime,
      files,
    );
  });

  it('write the error of a scrape that cannot read the pods', () => {
    assert.match(cadvisorMetrics({ ...FACTS, usage: undefined }), /^container_scrape_error 1$/m);
    assert.match(resourceMetrics(undefined), /^resource_scrape_error 1$/m);
  });

  it('write the error of a machine whose memory cannot be read', () => {
    const errorOf = (memoryBytes: number): string | undefined =>
      /^machine_scrape_error .*$/m.exec(
        cadvisorMetrics({ ...FACTS, usage: undefined, machine: { ...FACTS.machine, memoryBytes } }),
      )?.[0];
    assert.deepEqual([0, 1].map(errorOf), ['machine_scrape_error 1', 'machine_scrape_error 0']);
  });

  it('show how long tasks of a container were stalled', async () => {
    const unified = v2('/kubepods/podu1/c', { cpuUs: 1, memory: 1, inactive: 0 });
    await withTree({ 'cgroup.controllers': 'cpu memory', ...unified }, async (directory) => {
      const node = await (await createCgroupReader(directory)).read('/kubepods/podu1/c');
      assert.ok(node !== undefined);
      const usage = { timeMs: 0, node, nodeNanoCores: undefined, allPods: undefined, qosClasses: [], pods: [] };
      const text = cadvisorMetrics({ ...FACTS, usage });
      assert.match(text, /^container_pressure_memory_waiting_seconds_total\{.*\} 0.001234 0$/m);
      assert.match(text, /^container_pressure_memory_stalled_seconds_total\{.*\} 1e-05 0$/m);
      assert.doesNotMatch(text, /container_pressure_cpu/);
    });
  });

  it('have the names and labels that metrics-server reads in /metrics/resource', async () => {
    await withCollector(async (collector, clock) => {
      const lines = resourceMetrics(await collector.snapshot(0)).split('\n');
      const now = clock.now();
      for (const line of [
        `node_cpu_usage_seconds_total 9 ${now}`,
        `node_memory_working_set_bytes 800000 ${now}`,
        `container_cpu_usage_seconds_total{container="main",namespace="shop",pod="web"} 1 ${now}`,
        `container_memory_working_set_bytes{container="main",namespace="shop",pod="web"} 50000 ${now}`,
        'container_start_time_seconds{container="main",namespace="shop",pod="web"} 1.767322801e+09',
        // The cgroup limits the sum of memory and swap, but not memory, so that swap has no limit of its own.
        `container_swap_limit_bytes{container="main",namespace="shop",pod="web"} 0 ${now}`,
        `pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 2 ${now}`,
        'resource_scrape_error 0',
      ]) {
        assert.ok(lines.includes(line), line);
      }
    });
  });

  it('have the labels that dashboards join by in /metrics/cadvisor', async () => {
    await withCollector(async (collector) => {
      const text = cadvisorMetrics({ ...FACTS, usage: await collector.snapshot(0) });
      assert.match(
        text,
        new RegExp(
          `^container_memory_working_set_bytes\\{container="main",id="${podPath}/${ID}",image="busybox:1",name="${ID}",namespace="shop",pod="web"\\} 50000 \\d+$`,
          'm',
        ),
      );
      assert.match(
        text,
        /^container_cpu_usage_seconds_total\{container="",cpu="total",id="\/",image="",name="",namespace="",pod=""\} 9 \d+$/m,
      );
      assert.match(text, /^machine_cpu_cores\{boot_id="b",machine_id="m",system_uuid="s"\} 4$/m);
      const families = [...text.matchAll(/^# TYPE (\S+)/gm)].map((match) => match[1]);
      assert.equal(new Set(families).size, families.length);
    });
  });

  it("have the kubelet's format in the summary", async () => {
    await withCollector(async (collector) => {
      const usage = await collector.snapshot(0);
      const filesystem = {
        capacityBytes: 100,
        availableBytes: 60,
        usedBytes: 40,
        inodes: 10,
        inodesFree: 4,
        device: 1,
      };
      const part = { filesystem, used: { usedBytes: 5, inodesUsed: 2 } };
      const storage = {
        node: { root: filesystem, images: part, containers: part },
        pods: new Map([
          [
            'u1',
            {
              containers: new Map([['main', { layer: part.used, logs: part.used }]]),
              volumes: [],
              ephemeral: { usedBytes: 10, inodesUsed: 4 },
            },
          ],
        ]),
      };
      const facts = {
        nodeName: 'n',
        bootedAtMs: 0,
        memoryCapacityBytes: 1_000_000,
        swapCapacityBytes: 0,
        interfaces: [],
        defaultInterface: 'eth0',
        processes: { current: 3, max: 100 },
        usage,
        system: [],
      };
      const full = summaryOf({ ...facts, storage }) as {
        node: Record<string, unknown>;
        pods: Record<string, unknown>[];
      };
      assert.deepEqual(Object.keys(full.node), [
        'nodeName',
        'systemContainers',
        'startTime',
        'cpu',
        'memory',
        'io',
        'network',
        'fs',
        'runtime',
        'rlimit',
        'swap',
      ]);
      const [pod] = full.pods;
      assert.deepEqual(pod?.['podRef'], { name: 'web', namespace: 'shop', uid: 'u1' });
      const ephemeral = pod?.['ephemeral-storage'] as { usedBytes: number } | undefined;
      assert.equal(ephemeral?.usedBytes, 10);
      const short = summaryOf(facts) as typeof full;
      assert.deepEqual(Object.keys(short.node), ['nodeName', 'systemContainers', 'startTime', 'cpu', 'memory', 'swap']);
      const keys = (value: unknown): string[] => Object.keys((value as object[])[0] ?? {});
      assert.deepEqual(keys(short.node['systemContainers']), ['name', 'startTime', 'cpu', 'memory', 'swap']);
      assert.deepEqual(keys(short.pods), ['podRef', 'startTime', 'containers', 'cpu', 'memory', 'swap']);
      const [container] = (short.pods[0]?.['containers'] ?? []) as object[];
      assert.partialDeepStrictEqual(container, { memory: { availableBytes: 0 }, swap: { swapAvailableBytes: 0 } });
      assert.equal(short.pods[0]?.['ephemeral-storage'], undefined);
    });
  });
});
