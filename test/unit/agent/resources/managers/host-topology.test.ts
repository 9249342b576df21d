/** Tests how CPUs and memory are read from sysfs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseCpuSet } from '../../../../../agent/resources/managers/cpu-set.ts';
import {
  CpuTopology,
  hugePageResource,
  readHostTopology,
} from '../../../../../agent/resources/managers/topology/host-topology.ts';
import { hostOf, sysfsTree } from '../../../../fakes/sysfs-tree.ts';

test('threads, cores, caches, NUMA nodes and sockets are distinguished', async () => {
  const host = await hostOf({ sockets: 2, nodesPerSocket: 2, coresPerNode: 4, threads: 2, coresPerCache: 2 });
  assert.equal(host.cpus.size, 32);
  assert.deepEqual(host.cpus.get(21), { cpu: 21, core: 5, socket: 0, numaNode: 1, uncoreCache: 4 });
  const cpus = new CpuTopology(host);
  assert.deepEqual(cpus.sockets, [0, 1]);
  assert.deepEqual(cpus.numaNodes, [0, 1, 2, 3]);
  assert.equal(cpus.cpusPerCore, 2);
  assert.equal(cpus.cpusPerUncoreCache, 4);
  assert.deepEqual(cpus.cpusIn('socket', [1]), parseCpuSet('8-15,24-31'));
});

test('memory, huge pages and distances belong to a NUMA node', async () => {
  const { numaNodes } = await hostOf({
    sockets: 2,
    nodesPerSocket: 2,
    coresPerNode: 1,
    memoryPerNodeBytes: 4 * 2 ** 30,
    hugePages: 16,
    distances: [12, 31],
  });
  assert.equal(numaNodes.length, 4);
  assert.equal(numaNodes[1]?.memoryBytes, 4 * 2 ** 30);
  assert.deepEqual(numaNodes[1]?.hugePages, new Map([[2 * 2 ** 20, 16]]));
  assert.deepEqual(
    numaNodes[1]?.distances,
    new Map([
      [0, 12],
      [1, 10],
      [2, 31],
      [3, 31],
    ]),
  );
});

test('offline CPUs do not exist, and a single thread is a core', async () => {
  const host = await hostOf({ sockets: 1, coresPerNode: 2, threads: 2, offline: [0, 3] });
  assert.deepEqual([...host.cpus.keys()], [1, 2]);
  assert.equal(host.cpus.get(2)?.core, 2);
});

test('a host without NUMA has one node with everything', async () => {
  const root = await sysfsTree({ sockets: 1, coresPerNode: 2, withoutNuma: true });
  const host = readHostTopology({ root, memoryBytes: 1024 });
  assert.deepEqual(
    host.numaNodes.map(({ id, memoryBytes }) => [id, memoryBytes]),
    [[0, 1024]],
  );
  assert.equal(host.cpus.get(1)?.numaNode, 0);
});

test('the topology of this host can be read', () => {
  const host = readHostTopology({ root: '/sys/devices/system', memoryBytes: 1024 });
  assert.ok(host.cpus.size > 0);
  assert.ok(host.numaNodes.length > 0);
});

test('huge page resources are named by their size', () => {
  assert.deepEqual([64 * 1024, 2 ** 21, 2 ** 30].map(hugePageResource), [
    'hugepages-64Ki',
    'hugepages-2Mi',
    'hugepages-1Gi',
  ]);
});
