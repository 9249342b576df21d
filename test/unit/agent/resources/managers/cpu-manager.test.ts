/**
 * Tests the CPU manager: which containers get exclusive CPUs, which share, and the CPU sets that the runtime applies.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { StateError } from '../../../../../agent/resources/managers/checkpoint-file.ts';
import {
  CpuManager,
  type CpuManagerOptions,
  type RunningContainer,
} from '../../../../../agent/resources/managers/cpumanager/cpu-manager.ts';
import { parseCpuSet } from '../../../../../agent/resources/managers/cpu-set.ts';
import { AdmissionError } from '../../../../../agent/resources/managers/hint-provider.ts';
import { cpuPolicyOptions } from '../../../../../agent/resources/managers/policy-options.ts';
import { CpuTopology } from '../../../../../agent/resources/managers/topology/host-topology.ts';
import { maskOf } from '../../../../../agent/resources/managers/topology/numa-mask.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { exclusivePod, resourcePod } from '../../../../fakes/resource-pod.ts';
import { hostOf, type Machine } from '../../../../fakes/sysfs-tree.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const HT: Machine = { sockets: 1, coresPerNode: 4, threads: 2 };
const DUAL: Machine = { sockets: 2, coresPerNode: 4, threads: 2 };

interface Wish extends Partial<CpuManagerOptions> {
  readonly machine?: Machine;
  readonly fine?: Readonly<Record<string, string>>;
}

async function start({ machine = HT, fine = {}, ...options }: Wish = {}): Promise<CpuManager> {
  return CpuManager.start({
    policy: 'static',
    rootDirectory: temporaryFolder(),
    clock: new FakeClock(),
    logger: silentLogger,
    topology: new CpuTopology(await hostOf(machine)),
    options: cpuPolicyOptions(fine, { alpha: true, beta: true }),
    affinity: { affinity: () => ({ affinity: undefined, preferred: false }) },
    reservedCpus: parseCpuSet(''),
    reservedCount: 1,
    reconcileMs: 10_000,
    ...options,
  });
}

async function admit(manager: CpuManager, pod: ReturnType<typeof exclusivePod>): Promise<void> {
  for (const container of [...(pod.spec.initContainers ?? []), ...pod.spec.containers])
    await manager.allocate(pod, container);
}

test('Guaranteed containers with whole CPUs get them exclusively, others share the rest', async () => {
  const manager = await start();
  await admit(manager, exclusivePod('a', 2));
  assert.equal(manager.cpus('a', 'main'), '1,5');
  assert.equal(manager.cpus('other', 'main'), '0,2-4,6-7');
  // These containers share: one requests no whole CPUs, and the other is not Guaranteed.
  await admit(manager, exclusivePod('b', '1500m'));
  await admit(manager, resourcePod('c', [{ limits: { cpu: '2', memory: '1Gi' }, requests: { cpu: '1' } }]));
  assert.equal(manager.cpus('b', 'main'), '0,2-4,6-7');
  assert.equal(manager.hasExclusive('c'), false);
  assert.deepEqual(manager.exclusiveCpus('a', 'main'), [1, 5]);
  assert.deepEqual(manager.counts(), {
    ...{ requests: 1, errors: 0, exclusive: 2, sharedMilli: 5000 },
    ...{ perNumaNode: new Map([[0, 2]]), wholeCores: false, uncoreAligned: 1 },
  });
});

test('reserved CPUs are never allocated exclusively, but shared containers can use them', async () => {
  const manager = await start({ reservedCpus: parseCpuSet('0,4'), reservedCount: 2 });
  await admit(manager, exclusivePod('a', 6));
  assert.equal(manager.cpus('a', 'main'), '1-3,5-7');
  assert.equal(manager.cpus('shared', 'main'), '0,4');
  await assert.rejects(
    admit(manager, exclusivePod('b', 1)),
    /not enough cpus available to satisfy request: requested=1, available=0/,
  );
  assert.equal(manager.counts().errors, 1);
});

test('strict reservation also keeps shared containers off the reserved CPUs', async () => {
  const manager = await start({
    reservedCpus: parseCpuSet('0,4'),
    reservedCount: 2,
    fine: { 'strict-cpu-reservation': 'true' },
  });
  assert.equal(manager.cpus('shared', 'main'), '1-3,5-7');
});

test('a terminated pod releases its CPUs', async () => {
  const manager = await start();
  await admit(manager, exclusivePod('a', 4));
  manager.release('a');
  manager.release('a');
  assert.equal(manager.cpus('shared', 'main'), '0-7');
});

test('later containers reuse the CPUs of init containers; a sidecar keeps its own', async () => {
  const manager = await start();
  const limits = { cpu: '2', memory: '1Gi' };
  await admit(manager, resourcePod('a', [{ limits }], [{ name: 'init', limits: { cpu: '4', memory: '1Gi' } }]));
  const init = parseCpuSet(manager.cpus('a', 'init'));
  assert.equal(init.size, 4);
  assert.ok(parseCpuSet(manager.cpus('a', 'main')).isSubsetOf(init));
  manager.release('a');
  await admit(manager, resourcePod('b', [{ limits }], [{ name: 'side', limits, sidecar: true }]));
  assert.ok(parseCpuSet(manager.cpus('b', 'main')).isDisjointFrom(parseCpuSet(manager.cpus('b', 'side'))));
});

test('after a restart every container has the same CPUs', async () => {
  const rootDirectory = temporaryFolder();
  const before = await start({ rootDirectory });
  await admit(before, exclusivePod('a', 3));
  const after = await start({ rootDirectory });
  await admit(after, exclusivePod('a', 3));
  assert.equal(after.cpus('a', 'main'), before.cpus('a', 'main'));
  assert.equal(after.cpus('shared', 'main'), before.cpus('shared', 'main'));
});

test('a state that does not fit the host or the options is rejected', async () => {
  const rootDirectory = temporaryFolder();
  await admit(await start({ rootDirectory }), exclusivePod('a', 2));
  const refused = (wish: Wish, why: RegExp): Promise<void> =>
    assert.rejects(
      start({ rootDirectory, ...wish }),
      (error: unknown) => error instanceof StateError && why.test(error.message),
    );
  await refused(
    { reservedCpus: parseCpuSet('1'), reservedCount: 1 },
    /not all reserved cpus: "1" are present in defaultCpuSet: "0,2-4,6-7": please drain/,
  );
  await refused(
    { machine: { ...HT, coresPerNode: 8 } },
    /current set of available CPUs "0-15" doesn't match with CPUs in state "0-7"/,
  );
  await refused({ fine: { 'strict-cpu-reservation': 'true' } }, /some of strictly reserved cpus: "0" are present/);
  await refused({ policy: 'none' }, /configured policy "none" differs/);
  await refused({ reservedCount: 0 }, /greater than zero: set --reserved-cpus/);
});

test('full-pcpus-only: odd numbers and split cores are rejected with the reason', async () => {
  const manager = await start({ fine: { 'full-pcpus-only': 'true' } });
  const refused = (cpus: number, message: string): Promise<void> =>
    assert.rejects(admit(manager, exclusivePod(`p${cpus}`, cpus)), (error: unknown) => {
      assert.ok(error instanceof AdmissionError);
      assert.equal(error.reason, 'SMTAlignmentError');
      assert.equal(error.message, message);
      return true;
    });
  await refused(3, 'SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2');
  // The sibling of the reserved thread is not available.
  await refused(
    8,
    'SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8, CPUs per core = 2',
  );
  await admit(manager, exclusivePod('a', 6));
  assert.equal(manager.cpus('a', 'main'), '1-3,5-7');
});

test('CPUs come from the NUMA nodes of the hint, and from one socket with align-by-socket', async () => {
  const affinity = { affinity: () => ({ affinity: maskOf([1]), preferred: true }) };
  const manager = await start({ machine: DUAL, affinity });
  await admit(manager, exclusivePod('a', 4));
  assert.equal(manager.cpus('a', 'main'), '4-5,12-13');
  const split: Machine = { sockets: 2, nodesPerSocket: 2, coresPerNode: 2 };
  const socket = await start({ machine: split, affinity, fine: { 'align-by-socket': 'true' } });
  await admit(socket, exclusivePod('a', 3));
  // Node 1 has two free CPUs. The third is on its socket and not reserved.
  assert.equal(socket.cpus('a', 'main'), '1-3');
});

test('hints: NUMA nodes with enough CPUs, preferred if they are as few as an empty host needs', async () => {
  const manager = await start({ machine: DUAL });
  const hintsFor = (cpus: number) => {
    const pod = exclusivePod('h', cpus);
    const [container] = pod.spec.containers;
    assert.ok(container);
    return manager.containerHints(pod, container);
  };
  const on = (preferred: boolean, ...nodes: number[]) => ({ affinity: maskOf(nodes), preferred });
  assert.deepEqual(hintsFor(2), { cpu: [on(true, 0), on(true, 1), on(false, 0, 1)] });
  // Node 0 contains the reserved CPU.
  assert.deepEqual(hintsFor(8), { cpu: [on(true, 1), on(false, 0, 1)] });
  assert.deepEqual(hintsFor(12), { cpu: [on(true, 0, 1)] });
  assert.deepEqual(
    manager.podHints(
      resourcePod('two', [
        { name: 'a', limits: { cpu: '5', memory: '1Gi' } },
        { name: 'b', limits: { cpu: '4', memory: '1Gi' } },
      ]),
    ),
    { cpu: [on(true, 0, 1)] },
  );
  assert.deepEqual(manager.podHints(exclusivePod('shared', '500m')), {});
});

test('a running container is updated once when the shared pool changes', async () => {
  const updates: string[] = [];
  const container = (podUid: string, id: string): RunningContainer => ({
    podUid,
    name: 'main',
    id,
    cpus: undefined,
    update: () => {
      updates.push(`${id} ${manager.cpus(podUid, 'main')}`);
      return Promise.resolve();
    },
  });
  const running = (): Promise<RunningContainer[]> => Promise.resolve([container('a', 'id-a'), container('s', 'id-s')]);
  const manager: CpuManager = await start({});
  await manager.reconcile(running);
  await manager.reconcile(running);
  await admit(manager, exclusivePod('a', 2));
  await manager.reconcile(running);
  assert.deepEqual(updates, ['id-a 0-7', 'id-s 0-7', 'id-a 1,5', 'id-s 0,2-4,6-7']);
});

test('without a policy no container is pinned', async () => {
  const manager = await start({ policy: 'none', reservedCount: 0 });
  await admit(manager, exclusivePod('a', 2));
  assert.equal(manager.cpus('a', 'main'), '');
  assert.equal(manager.hasExclusive('a'), false);
});
