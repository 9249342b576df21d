import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mountOf, parseMountInfo } from '../../../../agent/host/mount-table.ts';

test('the mount table is read with optional fields and with escapes in paths', () => {
  const text =
    '36 35 98:0 /mnt1 /mnt\\040two rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n' +
    '40 35 0:30 / /run/x\\134y rw - tmpfs tmpfs rw\n\n';
  assert.deepEqual(parseMountInfo(text), [
    {
      path: '/mnt two',
      type: 'ext3',
      source: '/dev/root',
      options: ['rw', 'errors=continue'],
      device: '98:0',
      isShared: true,
    },
    { path: '/run/x\\y', type: 'tmpfs', source: 'tmpfs', options: ['rw'], device: '0:30', isShared: false },
  ]);
});

test('a path is on the mount with the longest path above it, and on the newest of several such mounts', () => {
  const points = parseMountInfo(`22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 8:2 / /var/lib rw,relatime - xfs /dev/sda2 rw,prjquota
31 30 8:3 / /var/lib/my\\040disk rw - ext4 /dev/sda3 rw
32 22 8:4 / /var/lib rw - ext4 /dev/sda4 rw
`);
  const at = (path: string): string | undefined => mountOf(points, path)?.source;
  assert.equal(at('/var/lib/orchlet'), '/dev/sda4');
  assert.equal(at('/var/library'), '/dev/sda1');
  assert.equal(at('/var/lib/my disk/x'), '/dev/sda3');
  assert.equal(mountOf([], '/'), undefined);
});
