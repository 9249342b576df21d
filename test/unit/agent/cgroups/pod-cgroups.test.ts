import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { cgroupName, createPodCgroups, podCgroupParts } from '../../../../agent/cgroups/pod-cgroups.ts';
import type { Pod } from '../../../../agent/core-types.ts';
import { silentLogger } from '../../../../api/component/logger.ts';

function pod(resources: object): Pod {
  return {
    metadata: { name: 'p', namespace: 'ns', uid: 'abc-1' },
    spec: { containers: [{ name: 'c', resources }] },
  } as unknown as Pod;
}
const both = { limits: { cpu: '500m', memory: '64Mi' } };
const burstable = { limits: { cpu: '1', memory: '64Mi' }, requests: { cpu: '250m', memory: '32Mi' } };

describe('pod cgroups', () => {
  it('stand under their QoS class', () => {
    assert.deepEqual(podCgroupParts(pod({})), ['kubepods', 'besteffort', 'podabc-1']);
    assert.deepEqual(podCgroupParts(pod(burstable)), ['kubepods', 'burstable', 'podabc-1']);
    assert.deepEqual(podCgroupParts(pod(both)), ['kubepods', 'podabc-1']);
  });
  it('are named as the driver wants them', () => {
    const parts = podCgroupParts(pod({}));
    assert.equal(cgroupName(parts, { driver: 'cgroupfs', root: '/orc' }), '/orc/kubepods/besteffort/podabc-1');
    assert.equal(cgroupName(parts, { driver: 'systemd', root: '' }), 'kubepods-besteffort-podabc_1.slice');
  });
  for (const [version, files, expected] of [
    ['v1', ['cpu/cpu.shares', 'cpu/cpu.cfs_quota_us', 'memory/memory.limit_in_bytes'], ['256', '100000', '67108864']],
    ['v2', ['cpu.weight', 'cpu.max', 'memory.max'], ['10', '100000 100000', '67108864']],
  ] as const) {
    it(`bound a pod as a whole on ${version}`, async () => {
      const root = await mkdtemp(join(tmpdir(), 'cgroups-'));
      try {
        if (version === 'v2') await writeFile(join(root, 'cgroup.controllers'), 'cpu memory pids');
        const relative = 'kubepods/burstable/podabc-1';
        for (const file of files) {
          const [controller, name] = version === 'v1' ? file.split('/') : ['', file];
          await mkdir(join(root, controller ?? '', relative), { recursive: true });
          await writeFile(join(root, controller ?? '', relative, name ?? ''), '0');
        }
        const cgroups = await createPodCgroups({
          driver: 'cgroupfs',
          root: '',
          perQos: true,
          mountPoint: root,
          podPidsLimit: -1,
          cpuQuota: true,
          cpuPeriodUs: 100_000,
          logger: silentLogger,
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
