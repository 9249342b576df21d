import assert from 'node:assert/strict';
import { link, mkdir, statfs, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { it } from 'node:test';
import { type Directory, inDirectory, removeTree } from '../../../../../agent/base/files/beneath.ts';
import { countOf, diskUsage, filesUsage, fromStatfs } from '../../../../../agent/resources/statistics/disk-usage.ts';
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

it('a tree of more directories than fit into memory counts as all that its file system uses', async (t) => {
  const root = temporaryFolder();
  t.after(() => removeTree(root));
  for (let i = 0; i < 100; i += 1) await mkdir(join(root, `${i}${'d'.repeat(200)}`));
  const soFar = { usedBytes: 0, inodesUsed: 0 };
  const { inodesUsed } = await diskUsage(root, soFar, { maxNamesBytes: 100 * 250 });
  assert.equal(inodesUsed, 101);
  const { usedBytes } = await diskUsage(root, soFar, { maxNamesBytes: 50 * 250 });
  const { blocks, bfree, bsize } = await statfs(root);
  assert.ok(usedBytes > 0.5 * (blocks - bfree) * bsize, `${usedBytes} bytes`);
  assert.ok(soFar.usedBytes >= usedBytes);
});

it('the directories of all levels count together, and those that are measured count no more', async (t) => {
  const root = temporaryFolder();
  t.after(() => removeTree(root));
  for (const outer of ['a', 'b', 'c', 'd'])
    for (let i = 0; i < 20; i += 1) await mkdir(join(root, outer, `${i}${'d'.repeat(100)}`), { recursive: true });
  assert.equal((await diskUsage(root, undefined, { maxNamesBytes: 25 * 140 })).inodesUsed, 85);
});

it('files with several links count once, also if they are too many to be remembered', async (t) => {
  const root = temporaryFolder();
  t.after(() => removeTree(root));
  for (let i = 0; i < 20; i += 1) {
    await writeFile(join(root, `${i}`), Buffer.alloc(4096, 1));
    for (const name of ['second', 'third']) await link(join(root, `${i}`), join(root, `${i}-${name}`));
  }
  const remembered = await diskUsage(root);
  assert.equal(remembered.inodesUsed, 21);
  assert.deepEqual(await diskUsage(root, undefined, { maxLinked: 5 }), remembered);
});

it('numbers of a file system that no client can decode are shown as the nearest ones that all can', () => {
  const hostile = { blocks: 2 ** 64, bfree: 2 ** 65, bavail: -5, bsize: 4096, files: -1, ffree: 2 ** 63 };
  assert.deepEqual(fromStatfs(hostile), {
    ...{ capacityBytes: Number.MAX_SAFE_INTEGER, availableBytes: 0, usedBytes: 0, inodes: 0 },
    inodesFree: Number.MAX_SAFE_INTEGER,
  });
  assert.deepEqual([Number.NaN, -1, 1.5, Number.POSITIVE_INFINITY].map(countOf), [0, 0, 1, Number.MAX_SAFE_INTEGER]);
});
