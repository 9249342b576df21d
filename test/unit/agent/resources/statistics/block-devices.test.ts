import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { deviceNames, deviceNumber } from '../../../../../agent/resources/statistics/block-devices.ts';
import { withTree } from './cgroup-fixture.ts';

test('a device has the name of the block device, or else of what is mounted from it', async () => {
  const tree = {
    'block/8:0/uevent': 'MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk\n',
    'block/259:1/uevent': 'DEVNAME=nvme0n1p1\n',
    mountinfo:
      '22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw\n23 1 0:21 / /a rw - tmpfs tmpfs rw\n24 1 0:20 / /b rw - x other rw\n',
  };
  await withTree(tree, async (directory) => {
    const names = await deviceNames(['8:0', '259:1', '0:20', '0:99', '8:0'], {
      blockDirectory: join(directory, 'block'),
      mountinfo: join(directory, 'mountinfo'),
    });
    assert.deepEqual([...names].toSorted(), [
      ['0:20', 'overlay'],
      ['259:1', '/dev/nvme0n1p1'],
      ['8:0', '/dev/sda'],
    ]);
  });
});

test('a device number has the form of the kernel', () => {
  assert.deepEqual([deviceNumber(0x801), deviceNumber(0x10300)], ['8:1', '259:0']);
});
