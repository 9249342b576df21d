/** The bundle behaves like the sources: packages that are loaded on first use have the same exports as in Node.js. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { pack } from 'tar-stream';
import type { tarEntries } from '../../../api/codec/tar-entries.ts';
import type { loadSchema } from '../../../api/schema/table.ts';
import { bundleProgram } from '../../../scripts/program-bundle.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

describe('a bundle', () => {
  let folder: string;
  const load = async (name: string): Promise<unknown> => import(pathToFileURL(join(folder, `${name}.js`)).href);

  before(async () => {
    folder = temporaryFolder();
    const entries = { archive: 'api/codec/tar-entries.ts', schema: 'api/schema/table.ts' };
    await bundleProgram(folder, { entries, addons: [`linux-${process.arch}`], node: 'node24' });
  });

  test('a CommonJS package that is loaded on first use has its named exports', async () => {
    const archive = pack();
    archive.entry({ name: 'a/b' }, 'text');
    archive.finalize();
    const { tarEntries: entriesOf } = (await load('archive')) as { readonly tarEntries: typeof tarEntries };
    const names: string[] = [];
    for await (const { parts } of entriesOf(Readable.from(archive))) names.push(parts.join('/'));
    assert.deepEqual(names, ['a/b']);
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
