import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Pod } from '../../../../../agent/model/core-types.ts';
import { cadvisorMetrics } from '../../../../../agent/resources/statistics/cadvisor-metrics.ts';
import { createCgroupReader } from '../../../../../agent/resources/statistics/cgroup-reader.ts';
import { resourceMetrics } from '../../../../../agent/resources/statistics/resource-metrics.ts';
import { summaryOf } from '../../../../../agent/resources/statistics/summary.ts';
import { UsageCollector } from '../../../../../agent/resources/statistics/usage.ts';
import type { Runtime } from '../../../../../agent/runtime/runtime.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { v1, withTree } from './cgroup-fixture.ts';

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
): Promise<void> {
  await withTree(tree, async (directory) => {
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

describe('the metrics endpoints', () => {
  it('have the names and labels that metrics-server reads in /metrics/resource', async () => {
    await withCollector(async (collector, clock) => {
      const lines = resourceMetrics(await collector.snapshot(0)).split('\n');
      const now = clock.now();
      for (const line of [
        `node_cpu_usage_seconds_total 9 ${now}`,
        `node_memory_working_set_bytes 800000 ${now}`,
        `container_cpu_usage_seconds_total{container="main",namespace="shop",pod="web"} 1 ${now}`,
        `container_memory_working_set_bytes{container="main",namespace="shop",pod="web"} 50000 ${now}`,
        'container_start_time_seconds{container="main",namespace="shop",pod="web"} 1767322801',
        `pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 2 ${now}`,
        'resource_scrape_error 0',
      ]) {
        assert.ok(lines.includes(line), line);
      }
    });
  });

  it('have the labels that dashboards join by in /metrics/cadvisor', async () => {
    await withCollector(async (collector) => {
      const text = cadvisorMetrics({
        usage: await collector.snapshot(0),
        storage: {
          node: {
            root: undefined,
            images: { filesystem: undefined, used: { usedBytes: 0, inodesUsed: 0 } },
            containers: { filesystem: undefined, used: { usedBytes: 0, inodesUsed: 0 } },
          },
          pods: new Map(),
        },
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
      });
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
      assert.deepEqual(Object.keys(short.node), ['nodeName', 'systemContainers', 'startTime', 'cpu', 'memory']);
      assert.equal(short.pods[0]?.['ephemeral-storage'], undefined);
    });
  });
});
