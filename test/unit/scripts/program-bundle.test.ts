/** The bundle behaves like the sources: packages that are loaded on first use have the same exports as in Node.js. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createReadStream, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { createGunzip } from 'node:zlib';
import { tarEntries } from '../../../api/codec/tar-entries.ts';
import type { loadSchema } from '../../../api/schema/table.ts';
import type { writeBackupArchive } from '../../../cli/backup/archive.ts';
import { bundleProgram } from '../../../scripts/program-bundle.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

describe('a bundle', () => {
  let folder: string;
  const load = async (name: string): Promise<unknown> => import(pathToFileURL(join(folder, `${name}.js`)).href);

  before(async () => {
    folder = temporaryFolder();
    const entries = { archive: 'cli/backup/archive.ts', schema: 'api/schema/table.ts' };
    await bundleProgram(folder, { entries, addons: [`linux-${process.arch}`], node: 'node24' });
  });

  test('a CommonJS package that is loaded on first use has its named exports', async () => {
    const directory = temporaryFolder();
    const file = join(directory, 'archive.tgz');
    writeFileSync(join(directory, 'a'), 'text');
    const { writeBackupArchive: write } = (await load('archive')) as {
      readonly writeBackupArchive: typeof writeBackupArchive;
    };
    await write(file, [{ directory, path: 'a' }]);
    const names: string[] = [];
    for await (const { parts } of tarEntries(createReadStream(file), createGunzip())) names.push(parts.join('/'));
    assert.deepEqual(names, ['a']);
  });

  test('the schema and the texts of the types stand beside the program', async () => {
    const { loadSchema: schemaOf } = (await load('schema')) as { readonly loadSchema: typeof loadSchema };
    const name = 'io.k8s.api.core.v1.ConfigMap';
    assert.ok(schemaOf().struct(name)?.fields.has('data'));
    assert.match(schemaOf().description(name, 'data') ?? '', /configuration data/);
    assert.ok(!readdirSync(folder).includes('node_modules'));
  });

  test('holds the storage addon of the platforms that are named, and no sources of it', () => {
    const addon = join(folder, 'better-sqlite3');
    assert.deepEqual(readdirSync(addon).sort(), ['lib', 'package.json', 'prebuilds']);
    assert.deepEqual(readdirSync(join(addon, 'prebuilds')), [`linux-${process.arch}.node`]);
    assert.match(readFileSync(join(folder, 'licenses.txt'), 'utf8'), /^tar-stream \d[^]*MIT/m);
  });
});

describe('a bundle of scripts', () => {
  let folder: string;

  before(async () => {
    folder = temporaryFolder();
    const entries = { main: 'cli/main.ts' };
    await bundleProgram(folder, { entries, addons: [`linux-${process.arch}`], node: 'node26', compiled: true });
  });

  test('runs the program from compiled forms that V8 accepts', () => {
    const run = `const { load, scripts } = require('./loader.js');
      process.argv = [process.execPath, __dirname + '/main.js', 'controlplane', '--help'];
      load('main.js');
      process.on('exit', () => console.log('rejected:', [...new Set([...scripts.values()].map((script) => script.cachedDataRejected))]));`;
    writeFileSync(join(folder, 'run.js'), run);
    const output = execFileSync(process.execPath, [join(folder, 'run.js')], { encoding: 'utf8' });
    assert.match(output, /--secure-port/);
    assert.match(output, /^rejected: \[ false \]$/m);
  });

  test('runs without its compiled forms', () => {
    for (const name of readdirSync(join(folder, 'scripts')).filter((one) => one.endsWith('.compiled')))
      rmSync(join(folder, 'scripts', name));
    assert.match(
      execFileSync(process.execPath, [join(folder, 'main.js'), 'version'], { encoding: 'utf8' }),
      /^orchlet \d/,
    );
  });

  test('has only ASCII, which takes a byte for a character in memory', () => {
    const scripts = join(folder, 'scripts');
    const wide = readdirSync(scripts).filter((name) => /[^\0-\x7f]/.test(readFileSync(join(scripts, name), 'utf8')));
    assert.deepEqual(wide, []);
  });
});
