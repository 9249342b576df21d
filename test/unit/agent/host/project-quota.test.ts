/**
 * Tests how the output of the tools of project quotas and of the kernel is read. test/integration/volume-limits.test.ts tests
 * the limits themselves.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { oldestMountOf, projectsIn } from '../../../../agent/host/project-quota.ts';
import { mountOf, parseMountInfo } from '../../../../agent/host/mount-table.ts';

const MOUNTS = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 8:2 / /var/lib rw,relatime shared:2 master:1 - xfs /dev/sda2 rw,attr2,prjquota
31 30 8:3 / /var/lib/my\\040disk rw - ext4 /dev/sda3 rw,prjquota
32 30 0:40 / /var/lib/orchlet/agent rw - tmpfs tmpfs rw
`;

test('a limit is set at the oldest mount of the filesystem, because setquota accepts no other', () => {
  const bound = parseMountInfo(
    `${MOUNTS}33 31 8:3 /data /var/lib/my\\040disk/data rw shared:9 - ext4 /dev/sda3 rw,prjquota\n`,
  );
  assert.equal(mountOf(bound, '/var/lib/my disk/data/volumes')?.path, '/var/lib/my disk/data');
  assert.equal(oldestMountOf(bound, '/var/lib/my disk/data/volumes')?.path, '/var/lib/my disk');
  assert.equal(oldestMountOf([], '/'), undefined);
});

test('the projects of directories are read from the output of lsattr', () => {
  const listed = `    0 --------------e------- /v/.
1073741824 --------------e----P-- /v/pvc-1
   77 --------------e----P-- /v/.removed-ab c
lsattr: something else
`;
  assert.deepEqual(
    [...projectsIn(listed)],
    [
      ['.', 0],
      ['pvc-1', 1_073_741_824],
      ['.removed-ab c', 77],
    ],
  );
});
