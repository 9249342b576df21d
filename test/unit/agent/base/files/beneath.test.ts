import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { constants } from 'node:fs';
import { lstat, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Directory, inDirectory, IrregularFileError, removeTree } from '../../../../../agent/base/files/beneath.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

async function folders(): Promise<{ readonly inside: string; readonly outside: string }> {
  const root = temporaryFolder();
  const [inside, outside] = [join(root, 'inside'), join(root, 'outside')];
  await mkdir(inside);
  await mkdir(outside);
  await writeFile(join(outside, 'secret'), 'of the host');
  return { inside, outside };
}

/** Whether the test may mount. Only root can, and not in every container. */
const mayMount = spawnSync('unshare', ['--mount', 'mount', '--bind', '/tmp', '/tmp']).status === 0;

describe('files beneath a directory', () => {
  it('are not reached through links, neither to files nor through directories', async () => {
    const { inside, outside } = await folders();
    await symlink(join(outside, 'secret'), join(inside, 'file'));
    await symlink(outside, join(inside, 'directory'));
    await inDirectory(inside, async (directory) => {
      await assert.rejects(directory.readFile('file', 100), IrregularFileError);
      await assert.rejects(directory.overwriteFile('file', { content: 'x', mode: 0o644 }), IrregularFileError);
      await assert.rejects(directory.createFile('file', { content: 'x', mode: 0o644 }), { code: 'EEXIST' });
      await assert.rejects(directory.enter('directory'), { code: /^(ENOTDIR|ELOOP)$/ });
      await assert.rejects(directory.make('directory', 0o755), { code: /^(ENOTDIR|ELOOP)$/ });
    });
    assert.equal(await readFile(join(outside, 'secret'), 'utf8'), 'of the host');
  });

  it(
    'are regular: a FIFO is refused at once, for reading and for writing, and so is a device',
    { timeout: 10_000 },
    async () => {
      const { inside } = await folders();
      execFileSync('mkfifo', [join(inside, 'fifo')]);
      await inDirectory(inside, async (directory) => {
        await assert.rejects(directory.readFile('fifo', 100), IrregularFileError);
        await assert.rejects(directory.overwriteFile('fifo', { content: 'x', mode: 0o644 }), IrregularFileError);
      });
      await inDirectory('/dev', async (devices) => {
        await assert.rejects(devices.readFile('zero', 100), IrregularFileError);
        await assert.rejects(devices.openFile('null', constants.O_WRONLY), IrregularFileError);
      });
    },
  );

  it('are read up to a size', async () => {
    const { inside } = await folders();
    await writeFile(join(inside, 'file'), 'four');
    await inDirectory(inside, async (directory) => {
      assert.equal((await directory.readFile('file', 4)).toString(), 'four');
      await assert.rejects(directory.readFile('file', 3), /more than 3 bytes/);
    });
  });

  for (const name of ['', '.', '..', 'a/b', '../outside/secret'])
    it(`are named by one part: ${JSON.stringify(name)} is refused`, async () => {
      const { inside } = await folders();
      await inDirectory(inside, async (directory) => {
        await assert.rejects(async () => directory.readFile(name, 100), /is not the name of an entry/);
      });
    });

  it('stay where the directory is that was opened, whatever takes its name', async () => {
    const { inside, outside } = await folders();
    await inDirectory(inside, async (directory) => {
      await removeTree(inside);
      await symlink(outside, inside);
      await assert.rejects(directory.createFile('file', { content: 'x', mode: 0o644 }), { code: 'ENOENT' });
    });
    assert.deepEqual(await readdir(outside), ['secret']);
  });

  it('are entered part by part', async () => {
    const { inside, outside } = await folders();
    await mkdir(join(inside, 'a'));
    await symlink(outside, join(inside, 'a', 'b'));
    await assert.rejects(Directory.beneath(inside, ['a', 'b']), { code: /^(ENOTDIR|ELOOP)$/ });
  });

  it('are removed with their tree, links as links, however deep it is', async () => {
    const { inside, outside } = await folders();
    const tree = join(inside, 'tree');
    await mkdir(tree);
    await symlink(outside, join(tree, 'link'));
    // The path is longer than the kernel accepts at once.
    let directory = await Directory.open(tree);
    for (let level = 0; level < 3000; level++) {
      const inner = await directory.make('d'.repeat(8), 0o755);
      await directory.close();
      directory = inner;
    }
    await directory.createFile('leaf', { content: 'x', mode: 0o600 });
    await directory.close();
    await removeTree(tree);
    await assert.rejects(lstat(tree), { code: 'ENOENT' });
    assert.equal((await stat(join(outside, 'secret'))).size, 11);
    await removeTree(tree);
  });

  it('are not removed through a mount, not even one of the same file system', { skip: !mayMount }, async () => {
    const { inside, outside } = await folders();
    const tree = join(inside, 'tree');
    for (const mount of [tree, join(tree, 'mount'), join(tree, 'deep', 'mount')]) {
      await mkdir(mount, { recursive: true });
      execFileSync('mount', ['--bind', outside, mount]);
      try {
        await assert.rejects(removeTree(tree));
      } finally {
        execFileSync('umount', [mount]);
      }
      assert.deepEqual(await readdir(outside), ['secret']);
      await removeTree(tree);
    }
  });
});
