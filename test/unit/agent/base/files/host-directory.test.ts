import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { namesIn } from '../../../../../agent/base/files/host-directory.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

test('a directory that does not exist has no names, and one that cannot be read is an error', async () => {
  const root = temporaryFolder();
  await writeFile(join(root, 'file'), '');
  assert.deepEqual(await namesIn(root), ['file']);
  assert.deepEqual(await namesIn(join(root, 'missing')), []);
  await assert.rejects(namesIn(join(root, 'file')), { code: 'ENOTDIR' });
});
