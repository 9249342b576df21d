import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parseNetDev, parsePressure } from '../../../../../agent/resources/statistics/cgroup-files.ts';
import { createCgroupReader } from '../../../../../agent/resources/statistics/cgroup-reader.ts';
import { v1, v2, withTree } from './cgroup-fixture.ts';

describe('the usage of a cgroup', () => {
  it('is read from every controller in cgroup v1', async () => {
    await withTree(
      v1('/kubepods/podX', { cpuNs: 5_000_000_000, memory: 100_000, inactive: 30_000 }),
      async (directory) => {
        const reader = await createCgroupReader(directory);
        const usage = await reader.read('/kubepods/podX');
        assert.ok(usage !== undefined);
        assert.equal(reader.version, 1);
        assert.deepEqual(
          [usage.cpu.usageNs, usage.cpu.userNs, usage.cpu.quotaUs, usage.cpu.shares, usage.cpu.throttledNs],
          [5_000_000_000, 120_000_000, 0, 256, 2_000_000],
        );
        assert.deepEqual(
          [usage.memory.usageBytes, usage.memory.workingSetBytes, usage.memory.rssBytes, usage.memory.limitBytes],
          [100_000, 70_000, 8192, undefined],
        );
        assert.deepEqual(
          [usage.memory.reservationBytes, usage.memory.swapLimitBytes, usage.cpu.burstPeriods, usage.cpu.burstNs],
          [undefined, 2_097_152, 2, 7000],
        );
        // The faults of its children are not among them.
        assert.deepEqual([usage.memory.pageFaults, usage.memory.majorPageFaults], [7, 1]);
        assert.deepEqual(usage.processes, { current: 5, max: undefined });
        assert.deepEqual(usage.io.devices, [{ device: '8:0', readBytes: 4096, writeBytes: 8192, reads: 1, writes: 2 }]);
      },
    );
  });

  it('is read from the mount of one controller, whatever else has its name', async () => {
    const leftovers = { 'a,cpuacct/x': '', 'cpu,cpuacct/x': '', 'cpuacct,z/x': '', 'memory,z/x': '' };
    const tree = v1('/', { cpuNs: 5_000_000_000, memory: 100_000, inactive: 30_000 });
    await withTree({ ...leftovers, ...tree }, async (directory) => {
      const usage = await (await createCgroupReader(directory)).read('/');
      assert.deepEqual([usage?.cpu.usageNs, usage?.memory.usageBytes], [5_000_000_000, 100_000]);
    });
  });

  it('is read from the mount that two controllers share', async () => {
    const tree = v1('/', { cpuNs: 5_000_000_000, memory: 100_000, inactive: 30_000 });
    const shared = Object.entries(tree).map(([path, text]) => [path.replace(/^cpu(acct)?\//, 'cpu,cpuacct/'), text]);
    await withTree(Object.fromEntries(shared), async (directory) => {
      const usage = await (await createCgroupReader(directory)).read('/');
      assert.deepEqual([usage?.cpu.usageNs, usage?.cpu.shares], [5_000_000_000, 256]);
    });
  });

  it('is read from cgroup v2, with pressure', async () => {
    await withTree(
      {
        'cgroup.controllers': 'cpu memory pids\n',
        ...v2('/kubepods/podX', { cpuUs: 5_000_000, memory: 100_000, inactive: 30_000 }),
      },
      async (directory) => {
        const reader = await createCgroupReader(directory);
        const usage = await reader.read('/kubepods/podX');
        assert.ok(usage !== undefined);
        assert.equal(reader.version, 2);
        assert.deepEqual(
          [usage.cpu.usageNs, usage.cpu.quotaUs, usage.cpu.throttledPeriods],
          [5_000_000_000, 50_000, 2],
        );
        assert.deepEqual(
          [usage.memory.workingSetBytes, usage.memory.limitBytes, usage.memory.oomKills, usage.memory.failures],
          [70_000, 1_048_576, 1, 6],
        );
        assert.deepEqual(
          [usage.memory.reservationBytes, usage.memory.swapLimitBytes, usage.cpu.burstPeriods, usage.cpu.burstNs],
          [524_288, 0, 1, 4000],
        );
        assert.equal(usage.memory.pressure?.some.avg10, 1.5);
        assert.deepEqual(usage.processes, { current: 5, max: 100 });
        assert.deepEqual(usage.io.devices, [{ device: '8:0', readBytes: 4096, writeBytes: 8192, reads: 1, writes: 2 }]);
      },
    );
  });

  it('of the root in cgroup v2 is all memory that is not free', async () => {
    await withTree(
      {
        'cgroup.controllers': '',
        meminfo: 'MemTotal:  1000 kB\nMemFree:   600 kB\n',
        ...v2('', { cpuUs: 1, memory: undefined, inactive: 102_400 }),
      },
      async (directory) => {
        const usage = await (await createCgroupReader(directory, join(directory, 'meminfo'))).read('/');
        assert.deepEqual([usage?.memory.usageBytes, usage?.memory.workingSetBytes], [400 * 1024, 300 * 1024]);
      },
    );
  });

  it('of a removed cgroup is undefined', async () => {
    await withTree({ 'cgroup.controllers': '' }, async (directory) => {
      assert.equal(await (await createCgroupReader(directory)).read('/gone'), undefined);
    });
    await withTree({ 'memory/tasks': '' }, async (directory) => {
      assert.equal(await (await createCgroupReader(directory)).read('/gone'), undefined);
    });
  });
});

describe('kernel files', () => {
  it('of network interfaces are read without loopback and the host ends of pods', () => {
    const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    9    9    0    0    0     0          0         0    9    9    0    0    0     0       0          0
  eth0: 1000   10    1    2    0     0          0         0 2000   20    3    4    0     0       0          0
veth12: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0
`;
    assert.deepEqual(parseNetDev(text), [
      {
        name: 'eth0',
        rxBytes: 1000,
        rxPackets: 10,
        rxErrors: 1,
        rxDropped: 2,
        txBytes: 2000,
        txPackets: 20,
        txErrors: 3,
        txDropped: 4,
      },
    ]);
    assert.deepEqual(parseNetDev(''), []);
  });

  it('of pressure are read in nanoseconds; a missing line means none', () => {
    assert.deepEqual(parsePressure('some avg10=0.10 avg60=0.20 avg300=0.30 total=5\n'), {
      some: { avg10: 0.1, avg60: 0.2, avg300: 0.3, total: 5000 },
      full: { avg10: 0, avg60: 0, avg300: 0, total: 0 },
    });
  });
});
