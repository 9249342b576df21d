import assert from 'node:assert/strict';
import { mkdir, open, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeFolder, makeFolderSync, removeFile, replaceFile } from '../../../../api/machinery/replace-file.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

test('the content is replaced, with exactly the mode, whatever the umask', async () => {
  const path = join(temporaryFolder(), 'file');
  await writeFile(path, 'old content, which is longer', { mode: 0o600 });
  const umask = process.umask(0o077);
  try {
    await replaceFile(path, 'new', { mode: 0o644 });
  } finally {
    process.umask(umask);
  }
  assert.equal(await readFile(path, 'utf8'), 'new');
  assert.equal((await stat(path)).mode & 0o777, 0o644);
});

test('an open reader keeps the old content: the file is replaced and not written over', async () => {
  const path = join(temporaryFolder(), 'file');
  await writeFile(path, 'old');
  const reader = await open(path, 'r');
  await replaceFile(path, 'new', { mode: 0o600, sync: 'none' });
  assert.equal(await reader.readFile('utf8'), 'old');
  await reader.close();
});

test('a failure leaves the old content and no draft', async () => {
  const directory = temporaryFolder();
  const path = join(directory, 'file');
  await mkdir(join(path, 'inner'), { recursive: true });
  await assert.rejects(replaceFile(path, 'new', { mode: 0o600 }));
  assert.deepEqual(await readdir(directory), ['file']);
});

test('two calls at once leave one complete content', async () => {
  const directory = temporaryFolder();
  const path = join(directory, 'file');
  const contents = ['a'.repeat(100_000), 'b'.repeat(50_000)];
  await Promise.all(contents.map((content) => replaceFile(path, content, { mode: 0o600, sync: 'content' })));
  assert.ok(contents.includes(await readFile(path, 'utf8')));
  assert.deepEqual(await readdir(directory), ['file']);
});

test('missing folders are created with the mode, and an existing one stays as it is', async () => {
  const directory = temporaryFolder();
  for (const [name, make] of [
    ['async', makeFolder],
    ['sync', makeFolderSync],
  ] as const) {
    const path = join(directory, name, 'inner', 'innermost');
    await make(path, 0o700);
    assert.equal((await stat(path)).mode & 0o777, 0o700);
    await writeFile(join(path, 'file'), '');
    await make(path, 0o755);
    assert.equal((await stat(path)).mode & 0o777, 0o700);
    assert.deepEqual(await readdir(path), ['file']);
  }
});

test('a file is removed, and it is no error if there is none', async () => {
  const directory = temporaryFolder();
  const path = join(directory, 'file');
  await writeFile(path, '');
  await removeFile(path);
  await removeFile(path);
  assert.deepEqual(await readdir(directory), []);
  await assert.rejects(removeFile(join(path, '..')), { code: /EISDIR|EPERM/ });
});
