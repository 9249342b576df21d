/** Tests the memory manager: memory and huge pages of NUMA nodes for Guaranteed containers. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import {
  MemoryManager,
  type MemoryManagerOptions,
} from '../../../../../agent/resources/managers/memorymanager/memory-manager.ts';
import type { HostTopology } from '../../../../../agent/resources/managers/topology/host-topology.ts';
import { maskOf } from '../../../../../agent/resources/managers/topology/numa-mask.ts';
import { exclusivePod, resourcePod } from '../../../../fakes/resource-pod.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { hostOf } from '../../../../fakes/sysfs-tree.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const GIB = 2 ** 30;
/** Returns two NUMA nodes of 8 GiB, each with 1 GiB of huge pages and 1 GiB reserved for the system. */
const host = (): Promise<HostTopology> =>
  hostOf({ sockets: 2, coresPerNode: 2, memoryPerNodeBytes: 8 * GIB, hugePages: 512 });
const RESERVED = { reserved: '0:memory=1Gi;1:memory=1Gi', nodeReserved: { memory: 2 * GIB, cpu: 1 } };
const ANY = { affinity: () => ({ affinity: undefined, preferred: false }) };

async function start(options: Partial<MemoryManagerOptions> = {}): Promise<MemoryManager> {
  return MemoryManager.start({
    policy: 'Static',
    rootDirectory: temporaryFolder(),
    clock: new FakeClock(),
    logger: silentLogger,
    numaNodes: (await host()).numaNodes,
    affinity: ANY,
    ...RESERVED,
    ...options,
  });
}

async function admit(manager: MemoryManager, pod: ReturnType<typeof exclusivePod>): Promise<void> {
  for (const container of [...(pod.spec.initContainers ?? []), ...pod.spec.containers])
    await manager.allocate(pod, container);
}

const allocatable = (manager: MemoryManager) =>
  Object.fromEntries(
    manager.allocatable().map(({ numaAffinity, type, size }) => [`${numaAffinity.join()}/${type}`, size / GIB]),
  );

test('allocatable memory excludes the reservation and the huge pages of a node', async () => {
  assert.deepEqual(allocatable(await start()), {
    '0/hugepages-2Mi': 1,
    '0/memory': 6,
    '1/hugepages-2Mi': 1,
    '1/memory': 6,
  });
});

test('reservations must add up to the reserved amounts of the node', async () => {
  await assert.rejects(
    start({ reserved: '0:memory=1Gi' }),
    /the total amount "1Gi" of type "memory" is not equal to the value "2Gi" determined by Node Allocatable feature/,
  );
  await assert.rejects(
    start({ reserved: '0:memory=1Gi;5:memory=1Gi' }),
    /references a NUMA node 5 that does not exist on this machine/,
  );
  await assert.rejects(start({ reserved: '', nodeReserved: {} }), /you should specify the system reserved memory/);
});

test('a Guaranteed container gets memory and huge pages of one NUMA node, which the runtime applies', async () => {
  const manager = await start();
  await admit(manager, resourcePod('a', [{ limits: { cpu: '1', memory: '4Gi', 'hugepages-2Mi': '512Mi' } }]));
  assert.equal(manager.numaNodes('a', 'main'), '0');
  assert.deepEqual(manager.blocks('a', 'main'), [
    { numaAffinity: [0], type: 'memory', size: 4 * GIB },
    { numaAffinity: [0], type: 'hugepages-2Mi', size: GIB / 2 },
  ]);
  await admit(manager, exclusivePod('b', 1, '4Gi'));
  assert.equal(manager.numaNodes('b', 'main'), '1');
  await admit(manager, resourcePod('burstable', [{ limits: { memory: '4Gi' } }]));
  assert.equal(manager.numaNodes('burstable', 'main'), '');
});

test('a request that exceeds every node gets a group, and other containers do not split the group', async () => {
  const manager = await start();
  await admit(manager, exclusivePod('wide', 1, '8Gi'));
  assert.equal(manager.numaNodes('wide', 'main'), '0,1');
  // A node of the group cannot serve alone, so the small container gets the whole group as well.
  await admit(manager, exclusivePod('narrow', 1, '1Gi'));
  assert.equal(manager.numaNodes('narrow', 'main'), '0,1');
  manager.release('narrow');
  manager.release('wide');
  await admit(manager, exclusivePod('narrow', 1, '1Gi'));
  await assert.rejects(admit(manager, exclusivePod('wide', 1, '8Gi')), /no NUMA nodes with enough memory is available/);
});

test('later containers reuse the memory of init containers, and the state records it', async () => {
  const manager = await start();
  await admit(
    manager,
    resourcePod(
      'a',
      [{ limits: { cpu: '1', memory: '2Gi' } }],
      [{ name: 'init', limits: { cpu: '1', memory: '5Gi' } }],
    ),
  );
  const sizes = ['init', 'main'].map((name) => manager.blocks('a', name)[0]?.size);
  assert.deepEqual(sizes, [3 * GIB, 2 * GIB]);
  manager.release('a');
  await admit(manager, exclusivePod('b', 1, '6Gi'));
  assert.equal(manager.numaNodes('b', 'main'), '0');
});

test('memory comes from the nodes of the hint, which is extended if they have too little', async () => {
  const at = (...nodes: number[]) => ({ affinity: () => ({ affinity: maskOf(nodes), preferred: false }) });
  const one = await start({ affinity: at(1) });
  await admit(one, exclusivePod('a', 1, '2Gi'));
  assert.equal(one.numaNodes('a', 'main'), '1');
  const wide = await start({ affinity: at(1) });
  await admit(wide, exclusivePod('a', 1, '7Gi'));
  assert.equal(wide.numaNodes('a', 'main'), '0,1');
});

test('hints: NUMA nodes with enough memory, preferred if they are as few as an empty host needs', async () => {
  const manager = await start();
  const on = (preferred: boolean, ...nodes: number[]) => ({ affinity: maskOf(nodes), preferred });
  assert.deepEqual(manager.podHints(exclusivePod('a', 1, '4Gi')), {
    memory: [on(true, 0), on(true, 1), on(false, 0, 1)],
  });
  await admit(manager, exclusivePod('a', 1, '4Gi'));
  assert.deepEqual(manager.podHints(exclusivePod('a', 1, '4Gi')), { memory: [on(true, 0)] });
  assert.deepEqual(manager.podHints(exclusivePod('b', 1, '4Gi')), { memory: [on(true, 1)] });
  assert.deepEqual(manager.podHints(exclusivePod('c', 1, '100Gi')), { memory: [] });
});

test('the state survives a restart, and is rejected on another host', async () => {
  const rootDirectory = temporaryFolder();
  await admit(await start({ rootDirectory }), exclusivePod('a', 1, '4Gi'));
  const file = JSON.parse(await readFile(join(rootDirectory, 'memory_manager_state'), 'utf8')) as { entries: object };
  assert.deepEqual(file.entries, { a: { main: [{ numaAffinity: [0], type: 'memory', size: 4 * GIB }] } });
  const again = await start({ rootDirectory });
  assert.equal(again.numaNodes('a', 'main'), '0');
  const other = await hostOf({ sockets: 2, coresPerNode: 2, memoryPerNodeBytes: 16 * GIB, hugePages: 512 });
  await assert.rejects(
    start({ rootDirectory, numaNodes: other.numaNodes }),
    /the expected machine state is different from the real one: please drain this node and remove the policy state file/,
  );
});

test('without a policy no memory is allocated', async () => {
  const manager = await start({ policy: 'None', reserved: '', nodeReserved: {} });
  await admit(manager, exclusivePod('a', 1));
  assert.equal(manager.numaNodes('a', 'main'), '');
  assert.deepEqual(manager.allocatable(), []);
});
