import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { it } from 'node:test';
import { hostFilesystems } from '../../../../../agent/resources/statistics/host-filesystems.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

it('lists each device of the host once and each tmpfs by its mount point, without those of pods and containers', async () => {
  const root = temporaryFolder();
  const [memory, pod, sandbox] = ['shm', 'pods/u/volumes/kubernetes.io~empty-dir/v', 'sandboxes/c/shm'].map((path) =>
    join(root, path),
  );
  for (const path of [memory, pod, sandbox]) await mkdir(path ?? '', { recursive: true });
  const mount = (device: string, path: string | undefined, type: string, source: string): string =>
    `1 0 ${device} / ${path} rw - ${type} ${source} rw\n`;
  const files = { mountinfo: join(root, 'mountinfo'), diskstats: join(root, 'diskstats') };
  await writeFile(
    files.mountinfo,
    [
      mount('0:1', '/proc', 'proc', 'proc'),
      mount('254:0', '/', 'ext4', '/dev/vda'),
      mount('254:0', root, 'ext4', '/dev/vda'),
      mount('0:2', memory, 'tmpfs', 'tmpfs'),
      mount('0:3', pod, 'tmpfs', 'tmpfs'),
      mount('0:4', sandbox, 'tmpfs', 'shm'),
      mount('0:5', join(root, 'merged'), 'overlay', 'overlay'),
      mount('0:6', root, 'nfs4', 'server:/'),
      mount('8:1', join(root, 'gone'), 'ext4', '/dev/sda1'),
    ].join(''),
  );
  await writeFile(files.diskstats, ' 254       0 vda 11 12 13 14 15 16 17 18 19 20 21 0 0\n');
  const found = await hostFilesystems(files);
  assert.deepEqual(
    found.map(({ device, counters }) => [device, ...Object.values(counters)]),
    [
      ['/dev/vda', 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21],
      [memory, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ],
  );
  assert.ok((found[0]?.space.capacityBytes ?? 0) > 0);
});
