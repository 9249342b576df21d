import assert from 'node:assert/strict';
import { chmod, mkdir, realpath, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Directory } from '../../../../agent/base/files/beneath.ts';
import { checkHostPath } from '../../../../agent/volumes/host-path.ts';
import type { MountPoint } from '../../../../agent/host/mount-table.ts';
import type { Mounter } from '../../../../agent/volumes/mounter.ts';
import { setVolumeOwnership } from '../../../../agent/volumes/ownership.ts';
import { bindSubPath } from '../../../../agent/volumes/subpath.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const isRoot = process.getuid?.() === 0;

/** Records the real path behind the descriptor of each bind mount. */
class BindRecorder implements Mounter {
  readonly bound: string[] = [];
  points: MountPoint[] = [];
  async mount({ source, target }: { source: string; target: string }): Promise<void> {
    this.bound.push(await realpath(source));
    this.points.push({ path: target, type: 'ext4', source, options: ['rw'], device: '8:1', isShared: false });
  }
  async unmount(target: string): Promise<void> {
    this.points = this.points.filter((point) => point.path !== target);
  }
  async list(): Promise<readonly MountPoint[]> {
    return this.points;
  }
}

describe('a subPath', () => {
  it('binds files and directories below the volume', async () => {
    const root = temporaryFolder();
    await mkdir(join(root, 'volume/a'), { recursive: true });
    await writeFile(join(root, 'volume/a/file'), '');
    const mounter = new BindRecorder();
    await bindSubPath(join(root, 'volume'), 'a', join(root, 'target/0'), mounter);
    await bindSubPath(join(root, 'volume'), 'a/file', join(root, 'target/1'), mounter);
    assert.deepEqual(mounter.bound, [join(root, 'volume/a'), join(root, 'volume/a/file')]);
    assert.equal((await stat(join(root, 'target/0'))).isDirectory(), true);
    assert.equal((await stat(join(root, 'target/1'))).isFile(), true);
  });

  it('is made where it is missing, with the mode of the volume', async () => {
    const root = temporaryFolder();
    await mkdir(join(root, 'volume'));
    await chmod(join(root, 'volume'), 0o777);
    await bindSubPath(join(root, 'volume'), 'new/deep', join(root, 'target/0'), new BindRecorder());
    for (const path of ['new', 'new/deep']) assert.equal((await stat(join(root, 'volume', path))).mode & 0o777, 0o777);
  });

  it('follows links that stay in the volume', async () => {
    const root = temporaryFolder();
    await mkdir(join(root, 'volume/..2026/sub'), { recursive: true });
    await symlink('..2026', join(root, 'volume/..data'));
    await symlink('..data/sub', join(root, 'volume/relative'));
    await symlink(join(root, 'volume/..data/sub'), join(root, 'volume/absolute'));
    const mounter = new BindRecorder();
    await bindSubPath(join(root, 'volume'), 'relative', join(root, 'target/0'), mounter);
    await bindSubPath(join(root, 'volume'), 'absolute', join(root, 'target/1'), mounter);
    assert.deepEqual(mounter.bound, [join(root, 'volume/..2026/sub'), join(root, 'volume/..2026/sub')]);
  });

  const escapes: [string, string][] = [
    ['an absolute link', '/etc'],
    ['a relative link', '../outside'],
    ['a link through a directory', 'inner/../../outside'],
    ['a link to itself', 'out'],
  ];
  for (const [what, link] of escapes) {
    it(`does not leave the volume by ${what}`, async () => {
      const root = temporaryFolder();
      await mkdir(join(root, 'volume/inner'), { recursive: true });
      await mkdir(join(root, 'outside'));
      await symlink(link, join(root, 'volume/out'));
      const mounter = new BindRecorder();
      await assert.rejects(bindSubPath(join(root, 'volume'), 'out', join(root, 'target/0'), mounter));
      assert.deepEqual(mounter.bound, []);
    });
  }

  it('does not leave the volume by ..', async () => {
    const root = temporaryFolder();
    await mkdir(join(root, 'volume'));
    await assert.rejects(
      bindSubPath(join(root, 'volume'), 'a/../../outside', join(root, 'target/0'), new BindRecorder()),
      /leads out of its volume/,
    );
  });

  it('does not leave the volume while directories are replaced by links', async () => {
    const root = temporaryFolder();
    const [volume, outside] = [join(root, 'volume'), join(root, 'outside')];
    await mkdir(join(volume, 'a/b'), { recursive: true });
    await mkdir(join(outside, 'b'), { recursive: true });
    await symlink(outside, join(volume, 'link'));
    const [directory, kept, link] = [join(volume, 'a'), join(volume, 'kept'), join(volume, 'link')];
    let isOver = false;
    let swaps = 0;
    // The binder creates a missing target, which prevents the rename.
    const move = async (from: string, to: string): Promise<void> => {
      await rm(to, { recursive: true, force: true, maxRetries: 10 });
      await rename(from, to).catch(() => undefined);
    };
    const swap = (async () => {
      while (!isOver) {
        await move(directory, kept);
        await symlink(outside, link).catch(() => undefined);
        await move(link, directory);
        await move(kept, directory);
        swaps += 1;
      }
    })();
    const mounter = new BindRecorder();
    let refused = 0;
    for (let attempt = 0; attempt < 300; attempt++)
      await bindSubPath(volume, 'a/b', join(root, 'target/0'), mounter).catch(() => (refused += 1));
    isOver = true;
    await swap;
    assert.equal(mounter.bound.length + refused, 300);
    assert.ok(swaps > 0);
    assert.deepEqual(
      mounter.bound.filter((path) => !path.startsWith(`${volume}/`)),
      [],
    );
  });

  for (const [what, subPath] of [
    ['its last part', 'link'],
    ['a directory on the way', 'link/b'],
  ] as const)
    it(`is refused where ${what} becomes a link after links were resolved`, async (t) => {
      const root = temporaryFolder();
      const [volume, outside] = [join(root, 'volume'), join(root, 'outside')];
      await mkdir(volume);
      await mkdir(join(outside, 'b'), { recursive: true });
      await symlink(outside, join(volume, 'link'));
      // At that time there was no link.
      t.mock.method(Directory.prototype, 'readlink', () => Promise.reject(new Error('EINVAL')));
      const mounter = new BindRecorder();
      await assert.rejects(bindSubPath(volume, subPath, join(root, 'target/0'), mounter), /became a link|ENOTDIR/);
      assert.deepEqual(mounter.bound, []);
    });

  it('replaces the bind of the container before', async () => {
    const root = temporaryFolder();
    await mkdir(join(root, 'volume/a'), { recursive: true });
    const mounter = new BindRecorder();
    await bindSubPath(join(root, 'volume'), 'a', join(root, 'target/0'), mounter);
    await bindSubPath(join(root, 'volume'), 'a', join(root, 'target/0'), mounter);
    assert.equal(mounter.points.length, 1);
  });
});

describe('the type of a hostPath', () => {
  it("is checked with the kubelet's messages", async (t) => {
    const root = temporaryFolder();
    await writeFile(join(root, 'file'), '');
    await mkdir(join(root, 'directory'));
    const server = createServer().listen(join(root, 'socket'));
    t.after(() => server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    const table: [string, string, string | undefined][] = [
      ['directory', 'Directory', undefined],
      ['directory', 'DirectoryOrCreate', undefined],
      ['file', 'Directory', 'directory'],
      ['file', 'DirectoryOrCreate', 'directory'],
      ['missing', 'Directory', 'directory'],
      ['file', 'File', undefined],
      ['directory', 'File', 'file'],
      ['directory', 'FileOrCreate', 'file'],
      ['socket', 'Socket', undefined],
      ['file', 'Socket', 'socket file'],
      ['file', 'CharDevice', 'character device'],
      ['file', 'BlockDevice', 'block device'],
    ];
    for (const [name, type, failure] of table) {
      const path = join(root, name);
      if (failure === undefined) await checkHostPath(path, type);
      else
        await assert.rejects(checkHostPath(path, type), {
          message: `hostPath type check failed: ${path} is not a ${failure}`,
        });
    }
    await checkHostPath('/dev/null', 'CharDevice');
    await assert.rejects(checkHostPath(root, 'Sock'), { message: 'Sock is an invalid volume type' });
  });

  it('creates a directory or a file if its type requests it, but no parent of a file', async () => {
    const root = temporaryFolder();
    await checkHostPath(join(root, 'a/b'), 'DirectoryOrCreate');
    assert.equal((await stat(join(root, 'a/b'))).mode & 0o777, 0o755);
    await checkHostPath(join(root, 'f'), 'FileOrCreate');
    assert.equal((await stat(join(root, 'f'))).isFile(), true);
    await assert.rejects(checkHostPath(join(root, 'no/f'), 'FileOrCreate'), /ENOENT/);
  });
});

describe('the group of a volume', { skip: !isRoot }, () => {
  it('applies to files, directories with the set-group-id bit, and links, but not to the targets of links', async () => {
    const root = temporaryFolder();
    await mkdir(join(root, 'volume/d'), { recursive: true });
    await writeFile(join(root, 'volume/d/f'), '', { mode: 0o600 });
    await writeFile(join(root, 'outside'), '', { mode: 0o600 });
    await symlink('../outside', join(root, 'volume/link'));
    await setVolumeOwnership(join(root, 'volume'), { gid: 4321, readonly: false, policy: 'Always' });
    const file = await stat(join(root, 'volume/d/f'));
    assert.deepEqual([file.gid, file.mode & 0o7777], [4321, 0o660]);
    const directory = await stat(join(root, 'volume/d'));
    assert.deepEqual([directory.gid, directory.mode & 0o2070], [4321, 0o2070]);
    const outside = await stat(join(root, 'outside'));
    assert.deepEqual([outside.gid, outside.mode & 0o777], [0, 0o600]);
  });

  it('is left alone by OnRootMismatch where the root is right', async () => {
    const root = temporaryFolder();
    await mkdir(join(root, 'volume'));
    const options = { gid: 4321, readonly: false, policy: 'OnRootMismatch' } as const;
    await setVolumeOwnership(join(root, 'volume'), options);
    await writeFile(join(root, 'volume/f'), '', { mode: 0o600 });
    await setVolumeOwnership(join(root, 'volume'), options);
    assert.equal((await stat(join(root, 'volume/f'))).mode & 0o777, 0o600);
  });
});
