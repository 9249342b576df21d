import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { IrregularFileError } from '../../../../../agent/base/files/beneath.ts';
import { readRegularFile } from '../../../../../agent/base/files/regular-file.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

describe('a regular file', () => {
  const root = temporaryFolder();

  it('is read through links, up to its limit', async () => {
    writeFileSync(join(root, 'file'), 'four');
    symlinkSync('file', join(root, 'link'));
    assert.equal((await readRegularFile(join(root, 'link'), 4)).toString(), 'four');
    await assert.rejects(readRegularFile(join(root, 'file'), 3), /more than 3 bytes/);
    await assert.rejects(readRegularFile(join(root, 'missing'), 3), { code: 'ENOENT' });
  });

  it('is neither a FIFO, which is not waited for, nor a device, which is not opened, nor a directory', async () => {
    execFileSync('mkfifo', [join(root, 'fifo')]);
    symlinkSync('fifo', join(root, 'to-fifo'));
    for (const path of [join(root, 'fifo'), join(root, 'to-fifo'), '/dev/zero', '/dev/ptmx', root])
      await assert.rejects(readRegularFile(path, 100), IrregularFileError, path);
  });
});
