/**
 * Tests which CPUs are chosen on hosts with several sockets, NUMA nodes and threads, which are read from directory
 * trees.
 */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import fc from 'fast-check';
import { formatCpuSet, parseCpuSet, sameCpus } from '../../../../../agent/resources/managers/cpu-set.ts';
import { takeDistributed, takePacked } from '../../../../../agent/resources/managers/cpumanager/cpu-accumulator.ts';
import { CpuTopology } from '../../../../../agent/resources/managers/topology/host-topology.ts';
import { hostOf } from '../../../../fakes/sysfs-tree.ts';

const PLAIN = { spread: false, alignByUncoreCache: false };
const hosts: Record<'ht' | 'dual' | 'quad' | 'flat' | 'caches', CpuTopology> = {} as never;

before(async () => {
  // The hosts: four cores with two threads each; two sockets of six cores; two sockets with two NUMA nodes each; four
  // single cores; four caches.
  hosts.ht = new CpuTopology(await hostOf({ sockets: 1, coresPerNode: 4, threads: 2 }));
  hosts.dual = new CpuTopology(await hostOf({ sockets: 2, coresPerNode: 3, threads: 2 }));
  hosts.quad = new CpuTopology(await hostOf({ sockets: 2, nodesPerSocket: 2, coresPerNode: 10, threads: 2 }));
  hosts.flat = new CpuTopology(await hostOf({ sockets: 1, coresPerNode: 4 }));
  hosts.caches = new CpuTopology(await hostOf({ sockets: 1, coresPerNode: 8, threads: 2, coresPerCache: 2 }));
});

const packed = (host: CpuTopology, free: string, count: number, options = PLAIN): string =>
  formatCpuSet(takePacked(host, parseCpuSet(free), count, options));

test('packed: whole cores and sockets stay free if possible', () => {
  assert.equal(packed(hosts.ht, '0-7', 1), '0');
  assert.equal(packed(hosts.ht, '0-7', 2), '0,4');
  assert.equal(packed(hosts.ht, '0-7', 3), '0-1,4');
  assert.equal(packed(hosts.ht, '0-7', 8), '0-7');
  // A thread of a partly used core is taken before a whole core is split.
  assert.equal(packed(hosts.ht, '0-3,5-7', 1), '0');
  assert.equal(packed(hosts.ht, '1,2,3,5,6,7', 2), '1,5');
  // A whole socket is taken if the request has its size. For fewer CPUs, the fuller socket is taken.
  assert.equal(packed(hosts.dual, '0-11', 6), '0-2,6-8');
  assert.equal(packed(hosts.dual, '1-11', 6), '3-5,9-11');
  assert.equal(packed(hosts.dual, '0,2-11', 2), '0,6');
  assert.equal(packed(hosts.dual, '2-11', 2), '2,8');
  // A NUMA node of a socket with two nodes.
  assert.equal(packed(hosts.quad, '0-79', 20), '0-9,40-49');
  assert.equal(packed(hosts.quad, '0-79', 40), '0-19,40-59');
});

test('packed: a request for more than the free CPUs fails', () => {
  assert.throws(
    () => packed(hosts.ht, '0,2,4,6', 5),
    /^CpuAllocationError: not enough cpus available to satisfy request: requested=5, available=4$/,
  );
});

test('spread over cores: second threads are taken only after the first threads of all cores', () => {
  assert.equal(packed(hosts.ht, '0-7', 3, { ...PLAIN, spread: true }), '0-2');
  assert.equal(packed(hosts.ht, '0-7', 5, { ...PLAIN, spread: true }), '0-4');
});

test('aligned by uncore cache: a single cache that fits is preferred to parts of two', () => {
  const aligned = { ...PLAIN, alignByUncoreCache: true };
  // Caches: 0-1,8-9 / 2-3,10-11 / 4-5,12-13 / 6-7,14-15. The first has one free core, so four CPUs take another whole
  // cache.
  assert.equal(packed(hosts.caches, '1-7,9-15', 4, aligned), '2-3,10-11');
  assert.equal(packed(hosts.caches, '1-7,9-15', 2, aligned), '1,9');
  assert.equal(packed(hosts.caches, '1-7,9-15', 6, aligned), '1-3,9-11');
  assert.equal(packed(hosts.caches, '1-7,9-15', 4), '1-2,9-10');
});

test('distributed: every NUMA node provides the same number of CPUs, in whole groups', () => {
  const take = (free: string, count: number, group: number): string =>
    formatCpuSet(takeDistributed(hosts.quad, parseCpuSet(free), count, { ...PLAIN, groupSize: group }));
  assert.equal(take('0-79', 8, 1), '0-3,40-43');
  assert.equal(take('0-79', 40, 1), '0-19,40-59');
  assert.equal(take('0-79', 24, 1), '0-5,10-15,40-45,50-55');
  assert.equal(take('0-79', 60, 1), '0-29,40-69');
  // In groups of two threads no core is split, although 44 is not divisible by the number of nodes.
  const cores = takeDistributed(hosts.quad, parseCpuSet('0-79'), 44, { ...PLAIN, groupSize: 2 });
  assert.equal(cores.size, 44);
  for (const cpu of cores) assert.ok(cores.has((cpu + 40) % 80), 'both threads of each core');
});

const hostsAndFree = fc.constantFrom('ht', 'dual', 'quad', 'flat', 'caches').chain((name) =>
  fc.record({
    name: fc.constant(name as keyof typeof hosts),
    free: fc.subarray([...hosts[name as keyof typeof hosts].all], { minLength: 1 }),
    share: fc.double({ min: 0, max: 1, noNaN: true }),
    group: fc.constantFrom(1, 2),
    spread: fc.boolean(),
    alignByUncoreCache: fc.boolean(),
  }),
);

test('the chosen CPUs are free and as many as requested, on every host', () => {
  fc.assert(
    fc.property(hostsAndFree, ({ name, free, share, group, ...options }) => {
      const available = new Set(free);
      const count = Math.floor(share * available.size);
      for (const chosen of [
        takePacked(hosts[name], available, count, options),
        takeDistributed(hosts[name], available, count, {
          ...options,
          groupSize: Math.min(group, hosts[name].cpusPerCore),
        }),
      ]) {
        assert.equal(chosen.size, count);
        assert.ok(chosen.isSubsetOf(available));
      }
    }),
    { numRuns: 300 },
  );
});

test("CPU lists are parsed in the kernel's format", () => {
  fc.assert(
    fc.property(fc.uniqueArray(fc.nat(300)), (cpus) => {
      assert.ok(sameCpus(parseCpuSet(formatCpuSet(new Set(cpus))), new Set(cpus)));
    }),
  );
  assert.equal(formatCpuSet(new Set([7, 0, 1, 3, 2, 9])), '0-3,7,9');
  assert.throws(() => parseCpuSet('1.3'), /not a list of CPUs/);
  assert.throws(() => parseCpuSet('3-1'), /ends before it begins/);
});
