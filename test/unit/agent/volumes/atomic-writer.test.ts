import assert from 'node:assert/strict';
import {
  chmod,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { type Payload, type PayloadFile, writePayload } from '../../../../agent/volumes/atomic-writer.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const NOW = new Date(Date.UTC(2026, 0, 2, 3, 4, 5));
const isRoot = process.getuid?.() === 0;

function payload(files: Readonly<Record<string, string>>, more: Partial<PayloadFile> = {}): Payload {
  return new Map(
    Object.entries(files).map(([path, text]) => [path, { content: Buffer.from(text), mode: 0o644, ...more }]),
  );
}

describe('the atomic writer', () => {
  it('shows each key as a link through ..data into a directory of that time', async () => {
    const directory = temporaryFolder();
    assert.equal(await writePayload(directory, payload({ a: '1', 'sub/b': '2' }), undefined, NOW), true);
    assert.equal(await readlink(join(directory, 'a')), '..data/a');
    assert.equal(await readlink(join(directory, 'sub')), '..data/sub');
    assert.match(await readlink(join(directory, '..data')), /^\.\.2026_01_02_03_04_05\.[0-9a-f]+$/);
    assert.equal(await readFile(join(directory, 'sub/b'), 'utf8'), '2');
  });

  it('replaces the set, removes missing keys, and leaves one directory', async () => {
    const directory = temporaryFolder();
    await writePayload(directory, payload({ a: '1', b: '2' }), undefined, NOW);
    const first = await readlink(join(directory, '..data'));
    assert.equal(await writePayload(directory, payload({ b: '3', c: '4' }), undefined, NOW), true);
    assert.notEqual(await readlink(join(directory, '..data')), first);
    const names = (await readdir(directory)).filter((name) => !/^\.\.\d/.test(name)).toSorted();
    assert.deepEqual(names, ['..data', 'b', 'c']);
    assert.equal((await readdir(directory)).length, 4);
    assert.equal(await readFile(join(directory, 'b'), 'utf8'), '3');
  });

  it('touches nothing where content and modes are as before', async () => {
    const directory = temporaryFolder();
    await writePayload(directory, payload({ a: '1' }), undefined, NOW);
    const before = await readlink(join(directory, '..data'));
    assert.equal(await writePayload(directory, payload({ a: '1' }), undefined, NOW), false);
    assert.equal(await readlink(join(directory, '..data')), before);
  });

  it('rewrites files if only a mode differs, and sets modes regardless of the umask', async () => {
    const directory = temporaryFolder();
    await writePayload(directory, payload({ a: '1' }), undefined, NOW);
    assert.equal(await writePayload(directory, payload({ a: '1' }, { mode: 0o777 }), undefined, NOW), true);
    assert.equal((await stat(join(directory, 'a'))).mode & 0o7777, 0o777);
  });

  it('repairs missing links of a killed writer, and removes its leftovers', async () => {
    const directory = temporaryFolder();
    await writePayload(directory, payload({ a: '1' }), undefined, NOW);
    await rm(join(directory, 'a'));
    assert.equal(await writePayload(directory, payload({ a: '1' }), undefined, NOW), false);
    assert.equal(await readFile(join(directory, 'a'), 'utf8'), '1');
    await mkdir(join(directory, '..2025_01_01_00_00_00.0badcafe'));
    await symlink('nowhere', join(directory, '..data_tmp'));
    await writePayload(directory, payload({ a: '2' }), undefined, NOW);
    const left = await readdir(directory);
    assert.equal(left.includes('..2025_01_01_00_00_00.0badcafe'), false);
    assert.equal(left.includes('..data_tmp'), false);
  });

  it('leaves a directory alone that a mount below the volume made there', async () => {
    const directory = temporaryFolder();
    await writePayload(directory, payload({ a: '1' }), undefined, NOW);
    await mkdir(join(directory, 'nested'));
    assert.equal(await writePayload(directory, payload({ b: '1' }), undefined, NOW), true);
    assert.equal((await lstat(join(directory, 'nested'))).isDirectory(), true);
  });

  for (const path of ['', '/etc/passwd', '../up', 'a/../../b', '..data', '..x/y']) {
    it(`refuses the path ${JSON.stringify(path)}`, async () => {
      const directory = temporaryFolder();
      await assert.rejects(writePayload(directory, payload({ [path]: 'x' }), undefined, NOW), /is not allowed/);
      assert.deepEqual(await readdir(directory), []);
    });
  }

  it(
    'lets the group of the pod read files and enter directories, without writing again each time',
    {
      skip: !isRoot,
    },
    async () => {
      const directory = temporaryFolder();
      await chmod(directory, 0o777);
      const secret = payload({ 'sub/key': 's' }, { mode: 0o400, uid: 1234 });
      await writePayload(directory, secret, 4321, NOW);
      const file = await stat(join(directory, 'sub/key'));
      assert.deepEqual([file.mode & 0o7777, file.uid, file.gid], [0o440, 1234, 4321]);
      const parent = await stat(join(directory, 'sub'));
      assert.deepEqual([parent.mode & 0o7777, parent.gid], [0o2755, 4321]);
      const root = await stat(directory);
      assert.deepEqual([root.mode & 0o7777, root.gid], [0o2777, 4321]);
      const links = await Promise.all(['sub', '..data'].map((name) => lstat(join(directory, name))));
      assert.deepEqual(
        links.map(({ gid }) => gid),
        [4321, 4321],
      );
      assert.equal(await writePayload(directory, secret, 4321, NOW), false);
    },
  );

  it('refuses to replace a file of another writer with the name of a key', async () => {
    const directory = temporaryFolder();
    await writeFile(join(directory, 'a'), 'mine');
    await assert.rejects(writePayload(directory, payload({ a: '1' }), undefined, NOW), /EEXIST/);
    assert.equal(await readFile(join(directory, 'a'), 'utf8'), 'mine');
  });

  it('writes nothing where a link leads, whether it stands for the data or is swapped in while it writes', async () => {
    const directory = temporaryFolder();
    const elsewhere = temporaryFolder();
    await writePayload(directory, payload({ a: '1', 'sub/b': '1' }), undefined, NOW);
    await rm(join(directory, '..data'));
    await symlink(elsewhere, join(directory, '..data'));
    assert.equal(await writePayload(directory, payload({ a: '2' }), undefined, NOW), true);
    assert.equal(await readFile(join(directory, 'a'), 'utf8'), '2');
    let isWriting = true;
    let swaps = 0;
    const racing = (async (): Promise<void> => {
      while (isWriting) {
        for (const name of await readdir(directory)) {
          if (!/^\.\.\d/.test(name)) continue;
          await rename(join(directory, name), join(directory, `moved-${name}`)).catch(() => undefined);
          await symlink(elsewhere, join(directory, name)).then(
            () => swaps++,
            () => undefined,
          );
        }
      }
    })();
    let rounds = 0;
    // The race may make a round fail, but never redirect its files.
    for (let round = 0; round < 60 || ((rounds === 0 || swaps === 0) && round < 5_000); round++)
      await writePayload(directory, payload({ a: String(round), 'sub/b': '1' }), undefined, NOW).then(
        () => rounds++,
        () => undefined,
      );
    isWriting = false;
    await racing;
    assert.ok(swaps > 0 && rounds > 0, `${swaps} swaps, ${rounds} successful rounds`);
    assert.deepEqual(await readdir(elsewhere), []);
  });
});
