import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import {
  MAX_FILE_BYTES,
  readSource,
  scanFolder,
} from '../../../../../controlplane/controllers/manifests/manifest-folder.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

let folder = '';
beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const put = (name: string, text = 'a: 1\n'): void => writeFileSync(join(folder, name), text, { mode: 0o644 });
async function names(): Promise<string[]> {
  return (await scanFolder(folder)).sources.map(({ path }) => relative(folder, path));
}
async function fault(name: string): Promise<string> {
  return (await scanFolder(folder)).faults.get(join(folder, name)) ?? '';
}

test('manifests of the folder and of those below it are found, and nothing else', async () => {
  mkdirSync(join(folder, 'sub'));
  for (const name of ['a.yaml', 'b.yml', 'c.json', 'sub/d.yaml', '.e.yaml', 'f.yaml~', 'g.txt', 'h.yaml.swp'])
    put(name);
  assert.deepEqual(await names(), ['a.yaml', 'b.yml', 'c.json', 'sub/d.yaml']);
});

test('a file that is to be skipped is marked', async () => {
  put('a.yaml');
  put('a.yaml.skip', '');
  assert.deepEqual(
    (await scanFolder(folder)).sources.map(({ isSkipped }) => isSkipped),
    [true],
  );
});

test('a file that others may write to is not read', async () => {
  put('a.yaml');
  chmodSync(join(folder, 'a.yaml'), 0o666);
  assert.deepEqual(await names(), []);
  assert.match(await fault('a.yaml'), /Others may write to it \(mode 0666\)/);
});

test('a folder that others may write to is not read, and nothing is known about it', async () => {
  put('a.yaml');
  chmodSync(folder, 0o777);
  const { sources, isComplete } = await scanFolder(folder);
  assert.deepEqual([sources, isComplete], [[], false]);
});

test('a file of another user is not read', { skip: process.getuid?.() !== 0 }, async () => {
  put('a.yaml');
  execFileSync('chown', ['12345', join(folder, 'a.yaml')]);
  assert.match(await fault('a.yaml'), /belongs to user 12345/);
});

test('a FIFO and a link to a device are refused, and a link to a file is read', async () => {
  put('a.yaml', 'linked: true\n');
  execFileSync('mkfifo', [join(folder, 'b.yaml')]);
  symlinkSync('/dev/zero', join(folder, 'c.yaml'));
  symlinkSync('a.yaml', join(folder, 'd.yaml'));
  symlinkSync('nowhere', join(folder, 'e.yaml'));
  assert.deepEqual(await names(), ['a.yaml', 'd.yaml']);
  assert.equal(await fault('b.yaml'), 'Not a regular file');
  assert.equal(await fault('c.yaml'), 'Not a regular file');
  const { sources } = await scanFolder(folder);
  assert.equal((await readSource(sources[1] ?? assert.fail()))?.toString(), 'linked: true\n');
});

test('a file that is too large is refused', async () => {
  put('a.yaml');
  truncateSync(join(folder, 'a.yaml'), MAX_FILE_BYTES + 1);
  assert.match(await fault('a.yaml'), /Larger than/);
});

test('a link to a folder is not followed, and folders are searched to a depth', async () => {
  symlinkSync('.', join(folder, 'loop'));
  mkdirSync(join(folder, 'a/b/c/d/e/f/g/h/i'), { recursive: true });
  put('a/b/c/d/e/f/g/h/a.yaml');
  put('a/b/c/d/e/f/g/h/i/b.yaml');
  assert.deepEqual(await names(), ['a/b/c/d/e/f/g/h/a.yaml']);
  assert.match(await fault('loop'), /link to a folder/);
  assert.match(await fault('a/b/c/d/e/f/g/h/i'), /nested deeper/);
});

test('a file that changes after the scan is not read', async () => {
  put('a.yaml');
  const { sources } = await scanFolder(folder);
  put('a.yaml', 'longer: text\n');
  assert.equal(await readSource(sources[0] ?? assert.fail()), undefined);
});

test('a folder that is missing is no empty one', async () => {
  const { isComplete, faults } = await scanFolder(join(folder, 'missing'));
  assert.deepEqual([isComplete, faults.size], [false, 0]);
});

test('a folder with a kustomization is one source, whose signature changes with each of its files', async () => {
  mkdirSync(join(folder, 'k/base'), { recursive: true });
  put('k/kustomization.yaml');
  put('k/base/a.yaml');
  const before = (await scanFolder(folder)).sources;
  assert.deepEqual(
    before.map(({ path, isKustomization }) => [relative(folder, path), isKustomization]),
    [['k', true]],
  );
  put('k/base/a.yaml', 'changed: 1\n');
  const [after] = (await scanFolder(folder)).sources;
  assert.notEqual(after?.signature, before[0]?.signature);
});
