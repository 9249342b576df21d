/** What the tools of project quotas and the kernel print. The limits themselves: test/integration/volume-limits.test.ts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mountOf, projectsIn } from '../../../../agent/host/project-quota.ts';

const MOUNTS = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 8:2 / /var/lib rw,relatime shared:2 master:1 - xfs /dev/sda2 rw,attr2,prjquota
31 30 8:3 / /var/lib/my\\040disk rw - ext4 /dev/sda3 rw,prjquota
32 30 0:40 / /var/lib/orchlet/agent rw - tmpfs tmpfs rw
`;

test('a folder is on the mount with the longest path that contains it', () => {
  const at = (path: string): string | undefined => mountOf(MOUNTS, path)?.path;
  assert.equal(at('/var/lib/orchlet'), '/var/lib');
  assert.equal(at('/var/library'), '/');
  assert.equal(at('/var/lib/my disk/x'), '/var/lib/my disk');
  assert.equal(at('/var/lib/orchlet/agent/local-volumes'), '/var/lib/orchlet/agent');
  assert.deepEqual(mountOf(MOUNTS, '/var/lib/x')?.options, ['rw', 'attr2', 'prjquota']);
  assert.equal(mountOf('', '/'), undefined);
});

test('the projects of folders are read from lsattr', () => {
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
