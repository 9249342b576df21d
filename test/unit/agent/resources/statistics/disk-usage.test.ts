import assert from 'node:assert/strict';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { it } from 'node:test';
import { type Directory, inDirectory, removeTree } from '../../../../../agent/files/beneath.ts';
import { diskUsage, filesUsage } from '../../../../../agent/resources/statistics/disk-usage.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

/** Creates nested directories, with a file of this size in the innermost one. */
async function nest(outer: Directory, levels: number, bytes: number): Promise<void> {
  let directory = outer;
  for (let level = 0; level < levels; level += 1) {
    const inner = await directory.make('directory-with-a-name', 0o755);
    if (directory !== outer) await directory.close();
    directory = inner;
  }
  await directory.createFile('file', { content: Buffer.alloc(bytes, 1), mode: 0o644 });
  await directory.close();
}

it('files in directories that are nested deeper than any path are measured', async (t) => {
  const root = temporaryFolder();
  t.after(() => removeTree(root));
  await writeFile(join(root, 'beside'), Buffer.alloc(100_000, 1));
  await inDirectory(root, (directory) => nest(directory, 400, 1_000_000));
  const { usedBytes, inodesUsed } = await diskUsage(root);
  assert.equal(inodesUsed, 403);
  assert.ok(usedBytes >= 1_100_000, `${usedBytes} bytes`);
});

it('links are counted, but not their targets', async (t) => {
  const root = temporaryFolder();
  t.after(() => removeTree(root));
  await mkdir(join(root, 'volume'));
  await mkdir(join(root, 'elsewhere'));
  await writeFile(join(root, 'elsewhere/file'), Buffer.alloc(1_000_000, 1));
  await symlink('../elsewhere', join(root, 'volume/link'));
  const { usedBytes, inodesUsed } = await diskUsage(join(root, 'volume'));
  assert.equal(inodesUsed, 2);
  assert.ok(usedBytes < 1_000_000);
});

it('the files of a directory are measured without it and the directories in it', async (t) => {
  const root = temporaryFolder();
  t.after(() => removeTree(root));
  await writeFile(join(root, '0.log'), '');
  await writeFile(join(root, '1.log'), Buffer.alloc(4_096, 1));
  await mkdir(join(root, 'inner'));
  await writeFile(join(root, 'inner/file'), Buffer.alloc(4_096, 1));
  assert.deepEqual(await filesUsage(root), { usedBytes: 4_096, inodesUsed: 2 });
  assert.deepEqual(await filesUsage(join(root, 'missing')), { usedBytes: 0, inodesUsed: 0 });
});
