import assert from 'node:assert/strict';
import { mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { moveFile, syncTree } from '../../../../api/machinery/replace-file.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

test('a file or folder gets another name, and one that is there is replaced', async () => {
  const folder = temporaryFolder();
  await mkdir(join(folder, 'from'));
  await writeFile(join(folder, 'from', 'a'), 'new');
  await writeFile(join(folder, 'b'), 'old');
  await moveFile(join(folder, 'from', 'a'), join(folder, 'b'));
  assert.equal(await readFile(join(folder, 'b'), 'utf8'), 'new');
  await moveFile(join(folder, 'from'), join(folder, 'to'));
  await assert.rejects(moveFile(join(folder, 'from'), join(folder, 'to')), { code: 'ENOENT' });
});

test('a tree is synced without following links, which may lead anywhere', async () => {
  const folder = temporaryFolder();
  await mkdir(join(folder, 'tree', 'inner'), { recursive: true });
  await writeFile(join(folder, 'tree', 'inner', 'a'), 'a');
  // Following it would never end.
  await symlink('..', join(folder, 'tree', 'inner', 'up'));
  await symlink('/nowhere', join(folder, 'tree', 'dangling'));
  await syncTree(join(folder, 'tree'));
  await rm(join(folder, 'tree'), { recursive: true });
  await assert.rejects(syncTree(join(folder, 'tree')), { code: 'ENOENT' });
});
