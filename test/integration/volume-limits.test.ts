/**
 * Tests the limits of local volumes on a filesystem with project quotas: ext4 on a loop device. A user without capabilities
 * writes, since those with CAP_SYS_RESOURCE pass over quotas.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { LocalVolumes } from '../../agent/volumes/local-volumes.ts';
import { hostFolderLimits } from '../../agent/host/project-quota.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const MIB = 1n << 20n;
const NOBODY = 65_534;

const directory = temporaryFolder();
const disk = join(directory, 'disk');
const at = join(directory, 'mounted');

/** Makes and mounts the filesystem. Returns why this host cannot. */
function mountDisk(): string | false {
  mkdirSync(at);
  const steps = [
    ['truncate', '-s', '100M', disk],
    ['mkfs.ext4', '-q', '-O', 'quota,project', '-E', 'quotatype=prjquota', disk],
    ['mount', '-o', 'loop,prjquota', disk, at],
  ];
  for (const [tool = '', ...args] of steps) {
    const done = spawnSync(tool, args, { encoding: 'utf8' });
    if (done.status !== 0)
      return `no filesystem with project quotas here: ${tool}: ${done.error?.message ?? done.stderr}`;
  }
  if (spawnSync('setquota', ['--version']).error !== undefined) return 'setquota is not installed';
  return false;
}

/** Returns whether a user without rights can write so many MiB to a file. */
function writes(folder: string, file: string, mib: number): boolean {
  const args = ['if=/dev/zero', `of=${join(folder, file)}`, 'bs=1M', `count=${mib}`];
  return spawnSync('dd', args, { uid: NOBODY, gid: NOBODY }).status === 0;
}

const skip = mountDisk();

describe('local volumes on a filesystem with project quotas', { skip }, () => {
  const root = join(at, 'volumes');
  const volumes = new LocalVolumes({ root, limits: hostFolderLimits, clock: systemClock, logger: silentLogger });

  before(() => {
    spawnSync('chmod', ['755', directory, at]);
  });

  test('hold no more than their capacity, which expansion raises', async () => {
    const { path, unlimited } = await volumes.create('pvc-1', 5n * MIB);
    assert.equal(unlimited, '');
    // The root is closed to others, who have the folder mounted.
    spawnSync('chmod', ['755', root]);
    assert.equal(writes(path, 'small', 4), true);
    assert.equal(writes(path, 'large', 4), false);
    const { blocks, bsize } = statfsSync(path);
    assert.equal(BigInt(blocks) * BigInt(bsize), 5n * MIB);
    await volumes.create('pvc-1', 20n * MIB);
    assert.equal(writes(path, 'large', 4), true);
  });

  test('are limited each by itself', async () => {
    const { path } = await volumes.create('pvc-2', 5n * MIB);
    assert.equal(writes(path, 'small', 4), true);
  });

  test('leave no limit behind', async () => {
    await volumes.remove('pvc-1');
    const report = spawnSync('repquota', ['-Pnv', at], { encoding: 'utf8' }).stdout;
    assert.doesNotMatch(report, /\b20480\b/);
    assert.match(report, /\b5120\b/);
  });
});

test('the reason is reported where a filesystem has no project quotas', async () => {
  assert.match(await hostFolderLimits.problem('/proc'), /^\/proc \(proc\) is mounted without project quotas/);
});

after(() => {
  spawnSync('umount', [at]);
  rmSync(directory, { recursive: true, force: true });
});
