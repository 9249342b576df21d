import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { checkManifests } from '../../../../cli/doctor/manifest-checks.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

let directory = '';
before(() => {
  directory = temporaryFolder();
});

test('a host without folders of manifests has no finding', async () =>
  assert.deepEqual(await checkManifests(directory, [join(directory, 'other')]), []));

test('a broken manifest is named with its line', async () => {
  mkdirSync(join(directory, 'manifests'), { mode: 0o755 });
  writeFileSync(join(directory, 'manifests/a.yaml'), 'apiVersion: v1\nkind: A\nmetadata: {name: a}\n', { mode: 0o644 });
  assert.deepEqual(await checkManifests(directory, []), [
    { name: 'manifests', verdict: 'ok', text: `1 in ${directory}/manifests` },
  ]);
  writeFileSync(join(directory, 'manifests/b.yaml'), '---\n---\nkind: A\n', { mode: 0o644 });
  const [finding] = await checkManifests(directory, []);
  assert.equal(finding?.verdict, 'warn');
  assert.match(finding?.text ?? '', /b\.yaml, line 2: apiVersion is missing/);
});
