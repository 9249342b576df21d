import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { namesIn } from '../../../../agent/files/host-directory.ts';

test('a directory that does not exist has no names, and one that cannot be read is an error', async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'host-directory-'));
  t.after(() => rm(root, { recursive: true, force: true }));
  await writeFile(join(root, 'file'), '');
  assert.deepEqual(await namesIn(root), ['file']);
  assert.deepEqual(await namesIn(join(root, 'missing')), []);
  await assert.rejects(namesIn(join(root, 'file')), { code: 'ENOTDIR' });
});
