/**
 * The names of imported images survive restarts, are not lost if the file cannot be read, and are added when an archive is
 * loaded.
 */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { beforeEach, test } from 'node:test';
import {
  importedImages,
  loadPreloadedImages,
  rememberImported,
} from '../../../../../agent/runtime/images/imported-images.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

let root = '';
beforeEach(() => void (root = temporaryFolder()));

test('names are added once, in order, also in a root directory that does not exist yet', async () => {
  const directory = join(root, 'agent');
  assert.deepEqual(await importedImages(directory), []);
  await rememberImported(directory, ['b:1', 'a:1']);
  await rememberImported(directory, ['b:1', 'c:1']);
  assert.deepEqual(await importedImages(directory), ['a:1', 'b:1', 'c:1']);
});

for (const [what, content] of [
  ['half a file', '["a:1",'],
  ['something else than a list', '{"a:1":true}'],
  ['a list of other things than names', '["a:1",2]'],
] as const)
  test(`${what} is an error with a remedy, so that no image is collected and no name is lost`, async () => {
    const file = join(root, 'imported-images.json');
    await writeFile(file, content);
    await assert.rejects(importedImages(root), /imported-images\.json .*remove it/);
    await assert.rejects(rememberImported(root, ['b:1']), /remove it/);
  });

test('archives of a directory are loaded in order; one that cannot be loaded is logged, and the others are loaded', async () => {
  const directory = join(root, 'images');
  await loadPreloadedImages(directory, { loadImages: () => assert.fail('there is no archive') }, root, silentLogger);
  await rememberImported(directory, []);
  await rememberImported(directory, ['so that the directory exists']);
  for (const name of ['b.tar', 'a.tar', 'broken.tar', 'notes.txt']) await writeFile(join(directory, name), '');
  const loaded: string[] = [];
  const failed: unknown[] = [];
  const logger = { ...silentLogger, error: (fields: object) => failed.push(basename(Reflect.get(fields, 'archive'))) };
  const loadImages = (archive: string): Promise<readonly string[]> => {
    loaded.push(basename(archive));
    return archive.includes('broken') ? Promise.reject(new Error('no archive')) : Promise.resolve([basename(archive)]);
  };
  await loadPreloadedImages(directory, { loadImages }, root, logger);
  assert.deepEqual(loaded, ['a.tar', 'b.tar', 'broken.tar']);
  assert.deepEqual(failed, ['broken.tar']);
  assert.deepEqual(await importedImages(root), ['a.tar', 'b.tar']);
});

test('a folder of archives that cannot be read is logged, and a missing one is not', async () => {
  const logged: unknown[] = [];
  const logger = { ...silentLogger, error: (fields: object) => logged.push(Reflect.get(fields, 'directory')) };
  const runtime = { loadImages: () => assert.fail('there is no archive') };
  const file = join(root, 'a-file');
  await writeFile(file, '');
  await loadPreloadedImages(join(root, 'missing'), runtime, root, logger);
  await loadPreloadedImages(file, runtime, root, logger);
  assert.deepEqual(logged, [file]);
});
