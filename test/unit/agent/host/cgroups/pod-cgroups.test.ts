import assert from 'node:assert/strict';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { createCgroupManager } from '../../../../../agent/host/cgroups/cgroup-manager.ts';
import { cgroupName, cgroupPath } from '../../../../../agent/host/cgroups/cgroup-path.ts';
import type { CgroupManager, CgroupResources } from '../../../../../agent/host/cgroups/cgroup-resources.ts';
import { createPodCgroups, type PodCgroups, podCgroupParts } from '../../../../../agent/host/cgroups/pod-cgroups.ts';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

function pod(resources: object): Pod {
  return {
    metadata: { name: 'p', namespace: 'ns', uid: 'abc-1' },
    spec: { containers: [{ name: 'c', resources }] },
  } as unknown as Pod;
}
const both = { limits: { cpu: '500m', memory: '64Mi' }, requests: { cpu: '500m', memory: '64Mi' } };
const burstable = {
  limits: { cpu: '1', memory: '64Mi', 'hugepages-2Mi': '4Mi' },
  requests: { cpu: '250m', memory: '32Mi', 'hugepages-2Mi': '4Mi' },
};

describe('pod cgroups', () => {
  it('are below the cgroup of their QoS class', () => {
    assert.deepEqual(podCgroupParts(pod({})), ['kubepods', 'besteffort', 'podabc-1']);
    assert.deepEqual(podCgroupParts(pod(burstable)), ['kubepods', 'burstable', 'podabc-1']);
    assert.deepEqual(podCgroupParts(pod(both)), ['kubepods', 'podabc-1']);
  });
  it('are named as the driver wants them', () => {
    const parts = podCgroupParts(pod({}));
    assert.equal(cgroupName(parts, { driver: 'cgroupfs', root: '/orc' }), '/orc/kubepods/besteffort/podabc-1');
    const slice = cgroupName(parts, { driver: 'systemd', root: '' });
    assert.equal(slice, 'kubepods-besteffort-podabc_1.slice');
    assert.equal(cgroupPath(slice), `/kubepods.slice/kubepods-besteffort.slice/${slice}`);
    const below = cgroupName(parts, { driver: 'systemd', root: '/my-root/a' });
    assert.equal(below, 'my_root-a-kubepods-besteffort-podabc_1.slice');
  });
  for (const [version, files, expected] of [
    [
      'v1',
      [
        'cpu/cpu.shares',
        'cpu/cpu.cfs_period_us',
        'cpu/cpu.cfs_quota_us',
        'memory/memory.limit_in_bytes',
        'hugetlb/hugetlb.2MB.limit_in_bytes',
      ],
      ['256', '100000', '100000', '67108864', '4194304'],
    ],
    ['v2', ['cpu.weight', 'cpu.max', 'memory.max', 'hugetlb.2MB.max'], ['10', '100000 100000', '67108864', '4194304']],
  ] as const) {
    it(`limit a pod as a whole on ${version}`, async () => {
      const root = temporaryFolder();
      try {
        if (version === 'v2') await writeFile(join(root, 'cgroup.controllers'), 'cpu memory pids');
        const relative = 'kubepods/burstable/podabc-1';
        for (const file of files) {
          const [controller, name] = version === 'v1' ? file.split('/') : ['', file];
          await mkdir(join(root, controller ?? '', relative), { recursive: true });
          await writeFile(join(root, controller ?? '', relative, name ?? ''), '0');
        }
        const cgroups = createPodCgroups({
          manager: await createCgroupManager({ driver: 'cgroupfs', root: '', mountPoint: root, logger: silentLogger }),
          perQos: true,
          podPidsLimit: -1,
          cpuQuota: true,
          cpuPeriodUs: 100_000,
        });
        await cgroups.ensure(pod(burstable));
        const values = await Promise.all(
          files.map((file) => {
            const [controller, name] = version === 'v1' ? file.split('/') : ['', file];
            return readFile(join(root, controller ?? '', relative, name ?? ''), 'utf8');
          }),
        );
        assert.deepEqual(values, expected);
      } finally {
        await rm(root, { recursive: true, force: true });
      }
    });
  }
});

describe('limits that a pod loses when it is resized', () => {
  for (const [version, files, expected] of [
    ['v1', ['cpu/cpu.cfs_quota_us', 'memory/memory.limit_in_bytes'], ['-1', '-1']],
    ['v2', ['cpu.max', 'memory.max'], ['max 100000', 'max']],
  ] as const) {
    it(`are lifted on ${version}`, async () => {
      const root = temporaryFolder();
      try {
        if (version === 'v2') await writeFile(join(root, 'cgroup.controllers'), 'cpu memory pids');
        const place = (file: string): string =>
          version === 'v1'
            ? join(root, dirname(file), 'kubepods/burstable/podabc-1', basename(file))
            : join(root, 'kubepods/burstable/podabc-1', file);
        for (const file of files) {
          await mkdir(dirname(place(file)), { recursive: true });
          await writeFile(place(file), '1000\n');
        }
        const cgroups = createPodCgroups({
          manager: await createCgroupManager({ driver: 'cgroupfs', root: '', mountPoint: root, logger: silentLogger }),
          perQos: true,
          podPidsLimit: -1,
          cpuQuota: true,
          cpuPeriodUs: 100_000,
        });
        await cgroups.ensure(pod({ requests: { cpu: '250m' } }));
        assert.deepEqual(await Promise.all(files.map((file) => readFile(place(file), 'utf8'))), expected);
      } finally {
        await rm(root, { recursive: true, force: true });
      }
    });
  }
});

describe('the cgroup of a pod that is resized', () => {
  const limited = (cpu: string, memory: string): Pod => pod({ limits: { cpu, memory }, requests: { cpu, memory } });
  const setUp = (): { cgroups: PodCgroups; set: CgroupResources[] } => {
    const set: CgroupResources[] = [];
    const manager: CgroupManager = {
      name: (parts) => parts.join('/'),
      set: (_name, resources) => Promise.resolve(void set.push(resources)),
      update: () => Promise.resolve(true),
      remove: () => Promise.resolve(),
      children: () => Promise.resolve([]),
      isUsed: () => Promise.resolve(false),
    };
    const options = { manager, perQos: true, podPidsLimit: 0, cpuQuota: true, cpuPeriodUs: 100_000 };
    return { cgroups: createPodCgroups(options), set };
  };
  const MIB = 1024 * 1024;

  it('grows before its containers, and shrinks after them', async () => {
    const { cgroups, set } = setUp();
    assert.equal(cgroups.isBehind(limited('1', '64Mi')), false);
    await cgroups.ensure(limited('1', '64Mi'));
    const wanted = limited('2', '32Mi');
    assert.equal(cgroups.isBehind(wanted), true);
    await cgroups.ensure(wanted, { keepRoom: true });
    assert.deepEqual([set.at(-1)?.cpuQuota?.quotaUs, set.at(-1)?.memoryBytes], [200_000, 64 * MIB]);
    assert.equal(cgroups.isBehind(wanted), true);
    assert.equal(cgroups.loweredMemory(wanted), 32 * MIB);
    await cgroups.ensure(wanted);
    assert.deepEqual([set.at(-1)?.cpuQuota?.quotaUs, set.at(-1)?.memoryBytes], [200_000, 32 * MIB]);
    assert.equal(cgroups.isBehind(wanted), false);
    assert.equal(cgroups.loweredMemory(wanted), undefined);
  });

  it('keeps no limit until its containers have theirs', async () => {
    const { cgroups, set } = setUp();
    await cgroups.ensure(pod({ requests: { cpu: '1' } }));
    await cgroups.ensure(limited('1', '64Mi'), { keepRoom: true });
    assert.deepEqual([set.at(-1)?.cpuQuota?.quotaUs, set.at(-1)?.memoryBytes], [0, 0]);
  });
});
