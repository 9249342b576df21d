import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { chmod, lstat, mkdir, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Directory } from '../../../../agent/base/files/beneath.ts';
import { TooManyDirectoriesError } from '../../../../agent/base/files/waiting-names.ts';
import { setVolumeOwnership } from '../../../../agent/volumes/ownership.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const isRoot = process.getuid?.() === 0;
const GROUP = { gid: 4321, readonly: false, policy: 'Always' } as const;

describe('the ownership of a volume', { skip: !isRoot }, () => {
  it('belongs to the group of the pod, with set-group-id directories, and links are changed themselves', async () => {
    const volume = temporaryFolder();
    const outside = temporaryFolder();
    await writeFile(join(outside, 'file'), 'x', { mode: 0o600 });
    await mkdir(join(volume, 'sub'), { mode: 0o700 });
    await writeFile(join(volume, 'sub', 'file'), 'x', { mode: 0o600 });
    await symlink(join(outside, 'file'), join(volume, 'link'));
    await setVolumeOwnership(volume, GROUP);
    const directory = await stat(join(volume, 'sub'));
    assert.deepEqual([directory.gid, directory.mode & 0o7777], [4321, 0o2770]);
    const file = await stat(join(volume, 'sub', 'file'));
    assert.deepEqual([file.gid, file.mode & 0o7777], [4321, 0o660]);
    assert.equal((await lstat(join(volume, 'link'))).gid, 4321);
    const host = await stat(join(outside, 'file'));
    assert.deepEqual([host.gid, host.mode & 0o7777], [0, 0o600]);
  });

  it('changes files as their names are read, because the names of millions do not fit into memory', async (t) => {
    const volume = temporaryFolder();
    for (const name of ['a', 'b']) await writeFile(join(volume, name), 'x', { mode: 0o600 });
    t.mock.method(Directory.prototype, 'names', () => assert.fail('all names are read at once'));
    await setVolumeOwnership(volume, GROUP);
    for (const name of ['a', 'b']) assert.equal((await stat(join(volume, name))).gid, 4321);
  });

  it('fails for more directories than fit into memory, all levels together', async () => {
    const volume = temporaryFolder();
    for (const outer of ['a', 'b', 'c'])
      for (let i = 0; i < 20; i += 1) await mkdir(join(volume, outer, `${i}${'d'.repeat(100)}`), { recursive: true });
    await setVolumeOwnership(volume, { ...GROUP, maxNamesBytes: 25 * 140 });
    assert.equal((await stat(join(volume, 'c', `0${'d'.repeat(100)}`))).gid, 4321);
    const failed = setVolumeOwnership(volume, { ...GROUP, maxNamesBytes: 15 * 140 });
    await assert.rejects(failed, TooManyDirectoriesError);
  });

  it('holds one descriptor open for each level', async () => {
    const volume = temporaryFolder();
    const levels = 300;
    await mkdir(join(volume, ...Array.from({ length: levels }, () => 'd')), { recursive: true });
    const count = (): number => readdirSync('/proc/self/fd').length;
    const before = count();
    let most = 0;
    let isWalking = true;
    const walk = setVolumeOwnership(volume, GROUP).finally(() => (isWalking = false));
    while (isWalking) {
      most = Math.max(most, count() - before);
      await new Promise(setImmediate);
    }
    await walk;
    assert.ok(most >= levels && most < levels + 20, `${most} descriptors for ${levels} levels`);
  });

  it('never reaches a file of the host through a directory or file that becomes a link meanwhile', async () => {
    const volume = temporaryFolder();
    const outside = temporaryFolder();
    await chmod(outside, 0o700);
    const names = Array.from({ length: 50 }, (_, index) => `file${index}`);
    for (const name of names) await writeFile(join(outside, name), 'x', { mode: 0o600 });
    const [at, moved] = [join(volume, 'directory'), join(volume, 'moved')];
    await mkdir(at);
    for (const name of names) await writeFile(join(at, name), 'x');
    let isWalking = true;
    let swaps = 0;
    const racing = (async (): Promise<void> => {
      while (isWalking) {
        await rename(at, moved);
        await symlink(outside, at);
        swaps++;
        await rm(at);
        await rename(moved, at);
      }
    })();
    let rounds = 0;
    // The race may make a round fail, but never redirect it.
    for (let round = 0; round < 60 || (rounds === 0 && round < 5_000); round++)
      await setVolumeOwnership(volume, GROUP).then(
        () => rounds++,
        () => undefined,
      );
    isWalking = false;
    await racing;
    assert.ok(swaps > 0 && rounds > 0, `${swaps} swaps, ${rounds} successful rounds`);
    const directory = await stat(outside);
    assert.deepEqual([directory.gid, directory.mode & 0o7777], [0, 0o700]);
    for (const name of names) {
      const file = await stat(join(outside, name));
      assert.deepEqual([file.gid, file.mode & 0o7777], [0, 0o600]);
    }
  });
});
