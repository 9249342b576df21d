/** Tests the exact `busctl` calls for pods, QoS classes and reserved resources. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { createCgroupManager } from '../../../../../agent/host/cgroups/cgroup-manager.ts';
import { cgroupPath } from '../../../../../agent/host/cgroups/cgroup-path.ts';
import type { CgroupManager } from '../../../../../agent/host/cgroups/cgroup-resources.ts';
import { NodeAllocatable } from '../../../../../agent/host/cgroups/node-allocatable.ts';
import { createPodCgroups, type PodCgroups } from '../../../../../agent/host/cgroups/pod-cgroups.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { type Logger, silentLogger } from '../../../../../api/component/logger.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const BUS = [
  ...['--system', '--quiet', 'call'],
  ...['org.freedesktop.systemd1', '/org/freedesktop/systemd1', 'org.freedesktop.systemd1.Manager'],
];
const NONE = '18446744073709551615';
const SLICE = 'kubepods-burstable-pod1234_5678.slice';
const PATH = `kubepods.slice/kubepods-burstable.slice/${SLICE}`;

type Words = readonly string[];

/** Returns the arguments with which a slice is started. The accounting of IO exists only on v2. */
function started(name: string, version: 1 | 2, properties: Words): Words {
  const all = [
    ...['Description', 's', `Pods of Kubernetes: ${name}`, 'DefaultDependencies', 'b', 'false'],
    ...['CPUAccounting', 'b', 'true', 'MemoryAccounting', 'b', 'true', 'TasksAccounting', 'b', 'true'],
    ...(version === 2 ? ['IOAccounting', 'b', 'true'] : []),
    ...properties,
  ];
  return [...BUS, 'StartTransientUnit', 'ssa(sv)a(sa(sv))', name, 'replace', String(all.length / 3), ...all, '0'];
}

const changed = (name: string, properties: Words): Words => [
  ...[...BUS, 'SetUnitProperties', 'sba(sv)', name, 'true', String(properties.length / 3)],
  ...properties,
];

function podOf(resources: object, uid = '1234-5678'): Pod {
  return { metadata: { name: 'p', namespace: 'd', uid }, spec: { containers: [{ name: 'c', resources }] } } as Pod;
}
const BURSTABLE = { limits: { cpu: '255m', memory: '64Mi' }, requests: { cpu: '250m', memory: '32Mi' } };

/** Resolves to a host whose systemd creates the directories of slices, and rejects properties on request. */
async function hostOf(version: 1 | 2) {
  const root = temporaryFolder();
  const bases = version === 2 ? [root] : ['systemd', 'cpu', 'memory', 'cpuset'].map((name) => join(root, name));
  for (const base of bases) await mkdir(base, { recursive: true });
  if (version === 2) await writeFile(join(root, 'cgroup.controllers'), 'cpu memory pids hugetlb\n');
  const calls: Words[] = [];
  const warnings: string[] = [];
  const refuse = new Map<string, string>();
  const make = async (name: string): Promise<void> => {
    for (const base of bases) await mkdir(join(base, cgroupPath(name)), { recursive: true });
  };
  const manager = await createCgroupManager({
    driver: 'systemd',
    root: '',
    mountPoint: root,
    logger: { ...silentLogger, warn: (_fields: object, message: string) => warnings.push(message) } as Logger,
    async busctl(args) {
      calls.push(args);
      const [method = '', name = ''] = [args[6], args[8]];
      const why = refuse.get(method);
      if (why !== undefined) throw new Error(why);
      if (method === 'StartTransientUnit') await make(name);
    },
  });
  return { root, bases, calls, warnings, refuse, make, manager };
}

const podCgroups = (manager: CgroupManager, periodUs = 100_000): PodCgroups =>
  createPodCgroups({ manager, perQos: true, podPidsLimit: 100, cpuQuota: true, cpuPeriodUs: periodUs });

describe('a pod on a host of systemd', () => {
  test('has a slice with its limits as properties, on v2', async () => {
    const { calls, manager } = await hostOf(2);
    const cgroups = podCgroups(manager);
    assert.equal(cgroups.parent(podOf(BURSTABLE)), SLICE);
    await cgroups.ensure(podOf(BURSTABLE));
    // A quota of 25.5% is rounded up to 26%: systemd uses whole percents, and containers must get their quota.
    assert.deepEqual(calls, [
      started(SLICE, 2, [
        ...['CPUWeight', 't', '10', 'CPUQuotaPerSecUSec', 't', '260000'],
        ...['MemoryMax', 't', '67108864', 'TasksMax', 't', '100'],
      ]),
    ]);
  });

  test('has them by the older names on v1', async () => {
    const { calls, manager } = await hostOf(1);
    await podCgroups(manager, 50_000).ensure(podOf(BURSTABLE));
    assert.deepEqual(calls, [
      started(SLICE, 1, [
        ...['CPUShares', 't', '256', 'CPUQuotaPeriodUSec', 't', '50000', 'CPUQuotaPerSecUSec', 't', '260000'],
        ...['MemoryLimit', 't', '67108864', 'TasksMax', 't', '100'],
      ]),
    ]);
  });

  test('costs no call while nothing changes, and one when it is resized', async () => {
    const { calls, manager } = await hostOf(2);
    const cgroups = podCgroups(manager);
    await Promise.all([1, 2, 3].map(() => cgroups.ensure(podOf(BURSTABLE))));
    assert.equal(calls.length, 1);
    await cgroups.ensure(podOf({ requests: { cpu: '500m' } }));
    assert.deepEqual(calls.slice(1), [
      changed(SLICE, [
        ...['CPUWeight', 't', '20', 'CPUQuotaPerSecUSec', 't', NONE],
        ...['MemoryMax', 't', NONE, 'TasksMax', 't', '100'],
      ]),
    ]);
  });

  test('keeps the slice that an earlier agent made', async () => {
    const { calls, refuse, make, warnings, manager } = await hostOf(2);
    await make(SLICE);
    refuse.set('StartTransientUnit', `Call failed: Unit ${SLICE} was already loaded or has a fragment file.`);
    await podCgroups(manager).ensure(podOf(BURSTABLE));
    assert.deepEqual(calls.slice(1), [
      changed(SLICE, [
        ...['CPUWeight', 't', '10', 'CPUQuotaPerSecUSec', 't', '260000'],
        ...['MemoryMax', 't', '67108864', 'TasksMax', 't', '100'],
      ]),
      [...BUS, 'StartUnit', 'ss', SLICE, 'replace'],
    ]);
    assert.deepEqual(warnings, []);
  });

  test('gets its slice again after it was stopped', async () => {
    const { root, calls, manager } = await hostOf(1);
    await podCgroups(manager).ensure(podOf(BURSTABLE));
    await rm(join(root, 'systemd', PATH), { recursive: true });
    await podCgroups(manager).ensure(podOf(BURSTABLE));
    assert.deepEqual(calls[1], calls[0]);
  });

  test('gets its former limits back after a change that was written to the files', async () => {
    const { root, calls, refuse, manager } = await hostOf(2);
    const cgroups = podCgroups(manager);
    await cgroups.ensure(podOf(BURSTABLE));
    for (const file of ['cpu.weight', 'cpu.max', 'memory.max', 'pids.max'])
      await writeFile(join(root, PATH, file), 'max\n');
    refuse.set('SetUnitProperties', 'Connection timed out');
    await cgroups.ensure(podOf({ requests: { cpu: '500m' } }));
    refuse.clear();
    const before = calls.length;
    await cgroups.ensure(podOf(BURSTABLE));
    assert.deepEqual(
      calls.slice(before).map((args) => args[6]),
      ['StartTransientUnit'],
    );
  });

  test('has huge pages by file, because systemd has no property for them', async () => {
    const { root, calls, manager, make, warnings } = await hostOf(2);
    await make(SLICE);
    await writeFile(join(root, PATH, 'hugetlb.2MB.max'), 'max\n');
    await podCgroups(manager).ensure(
      podOf({ limits: { 'hugepages-2Mi': '4Mi', cpu: '1' }, requests: { 'hugepages-2Mi': '4Mi', cpu: '250m' } }),
    );
    assert.equal(calls.length, 1);
    assert.equal(await readFile(join(root, PATH, 'hugetlb.2MB.max'), 'utf8'), '4194304');
    assert.deepEqual(warnings, []);
  });

  test('leaves no slice and no directory of a runtime behind', async () => {
    const { bases, calls, manager } = await hostOf(1);
    const cgroups = podCgroups(manager);
    await cgroups.ensure(podOf(BURSTABLE));
    await cgroups.remove(podOf(BURSTABLE));
    assert.deepEqual(calls.slice(1), [[...BUS, 'StopUnit', 'ss', SLICE, 'replace']]);
    assert.deepEqual(
      bases.filter((base) => existsSync(join(base, PATH))),
      [],
    );
  });

  test('is not stopped while it has processes: that would kill them', async () => {
    const { root, calls, manager } = await hostOf(2);
    const cgroups = podCgroups(manager);
    await cgroups.ensure(podOf(BURSTABLE));
    await mkdir(join(root, PATH, 'docker-1.scope'));
    await writeFile(join(root, PATH, 'docker-1.scope', 'cgroup.procs'), '42\n');
    await cgroups.remove(podOf(BURSTABLE));
    assert.equal(calls.length, 1);
  });

  test('that is undesired loses its slice at the second check; others keep theirs', async () => {
    const { calls, make, manager } = await hostOf(2);
    for (const name of [SLICE, 'kubepods-poda_b.slice', 'kubepods-besteffort-podc.slice']) await make(name);
    const cgroups = podCgroups(manager);
    assert.equal(await cgroups.cleanOrphans(() => new Set(['a-b', 'c'])), true);
    assert.deepEqual(calls, []);
    assert.equal(await cgroups.cleanOrphans(() => new Set(['a-b', 'c'])), false);
    assert.deepEqual(calls, [[...BUS, 'StopUnit', 'ss', SLICE, 'replace']]);
  });
});

describe('a host whose systemd does not answer', () => {
  for (const [what, why] of [
    ['without busctl', 'spawn busctl ENOENT'],
    ['without a bus', 'Failed to connect to bus: No such file or directory'],
  ] as const) {
    test(`${what} has its limits written to the files, which is logged once`, async () => {
      const { root, refuse, warnings, manager } = await hostOf(2);
      for (const method of ['StartTransientUnit', 'SetUnitProperties', 'StopUnit']) refuse.set(method, why);
      for (const [file, text] of [
        ['cpu.weight', '100'],
        ['cpu.max', 'max 100000'],
        ['memory.max', 'max'],
        ['pids.max', 'max'],
      ] as const) {
        await mkdir(dirname(join(root, PATH, file)), { recursive: true });
        await writeFile(join(root, PATH, file), `${text}\n`);
      }
      const cgroups = podCgroups(manager);
      await cgroups.ensure(podOf(BURSTABLE));
      await cgroups.ensure(podOf(BURSTABLE));
      const read = (file: string): Promise<string> => readFile(join(root, PATH, file), 'utf8');
      assert.deepEqual(await Promise.all(['cpu.weight', 'cpu.max', 'memory.max', 'pids.max'].map(read)), [
        ...['10', '25500 100000', '67108864', '100'],
      ]);
      assert.equal(warnings.length, 1);
      assert.match(warnings[0] ?? '', /busctl/);
    });
  }
});

describe('all pods, their classes and the reservations', () => {
  test('are slices too', async () => {
    const { calls, manager } = await hostOf(2);
    const held = new NodeAllocatable({ manager, logger: silentLogger });
    assert.equal(held.podsCgroup, 'kubepods.slice');
    await held.enforcePods({ milliCpu: 1500, memoryBytes: 2 ** 30, pids: 1000 });
    await held.updateQosShares([podOf({ requests: { cpu: '500m' } })]);
    const properties = ['CPUWeight', 't', '59', 'MemoryMax', 't', '1073741824', 'TasksMax', 't', '1000'];
    assert.deepEqual(calls, [
      started('kubepods.slice', 2, properties),
      started('kubepods-burstable.slice', 2, ['CPUWeight', 't', '20']),
      started('kubepods-besteffort.slice', 2, ['CPUWeight', 't', '1']),
    ]);
    await held.updateQosShares([podOf({ requests: { cpu: '1' } })]);
    assert.deepEqual(calls.slice(3), [changed('kubepods-burstable.slice', ['CPUWeight', 't', '39'])]);
  });

  for (const [name, unit, path] of [
    ['/system.slice', 'system.slice', 'system.slice'],
    ['system.slice', 'system.slice', 'system.slice'],
    ['/agents', 'agents.slice', 'agents.slice'],
    ['agents-kube.slice', 'agents-kube.slice', 'agents.slice/agents-kube.slice'],
    ['/agents.slice/agents-kube.slice', 'agents-kube.slice', 'agents.slice/agents-kube.slice'],
    ['/system.slice/orchlet.service', 'orchlet.service', 'system.slice/orchlet.service'],
  ] as const) {
    test(`${name} is held as ${unit}, which is never made`, async () => {
      const { root, calls, manager } = await hostOf(2);
      const held = new NodeAllocatable({ manager, logger: silentLogger });
      const limits = { milliCpu: 0, memoryBytes: 2 ** 30, pids: 0 };
      await held.enforce(name, limits);
      assert.deepEqual(calls, []);
      await mkdir(join(root, path), { recursive: true });
      await held.enforce(name, limits);
      await held.enforce(name, limits);
      assert.deepEqual(calls, [changed(unit, ['MemoryMax', 't', '1073741824'])]);
    });
  }
});
