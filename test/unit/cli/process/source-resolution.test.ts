/** Tests that a checkout finds its own files as Node.js does. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { temporaryFolder } from '../../../temporary-folder.ts';

const HOOK = pathToFileURL(join(import.meta.dirname, '../../../../cli/process/source-resolution.ts')).href;

test('imports of sources lead to the same modules as without it, others are left to Node.js', () => {
  const directory = temporaryFolder();
  const write = (name: string, text: string): void => writeFileSync(join(directory, name), text);
  write('package.json', '{"type":"module"}');
  write('a.ts', "export const { url } = import.meta; export * from './b.ts';\n");
  write('b.ts', "import data from './c.json' with { type: 'json' };\nexport const value: number = data.value;\n");
  write('c.json', '{"value":7}');
  write(
    'main.ts',
    `import { resolveSourcesDirectly } from '${HOOK}';
const before = await import('./b.ts');
resolveSourcesDirectly();
const a = await import('./a.ts');
const missing = await import('./missing.ts').catch((error: NodeJS.ErrnoException) => error.code);
console.log(JSON.stringify([a.url, a.value, (await import('./b.ts')) === before, missing, (await import('node:path')).sep]));\n`,
  );
  const { stdout, stderr } = spawnSync(process.execPath, [join(directory, 'main.ts')], { encoding: 'utf8' });
  const url = pathToFileURL(join(directory, 'a.ts')).href;
  assert.deepEqual(JSON.parse(stdout || stderr), [url, 7, true, 'ENOENT', '/']);
});
