/** The reference pages equal those that are generated from the tables. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { pages } from '../../../scripts/generate-docs.ts';

for (const [name, page] of Object.entries(pages)) {
  test(`docs/${name} is what the tables say`, () => {
    const text = readFileSync(new URL(`../../../docs/${name}`, import.meta.url), 'utf8');
    assert.ok(text === page(), `docs/${name} is out of date: run scripts/generate-docs`);
  });
}

test('scripts/generate-docs --check compares the pages of docs/', () => {
  const script = fileURLToPath(new URL('../../../scripts/generate-docs', import.meta.url));
  const done = spawnSync(script, ['--check'], { encoding: 'utf8' });
  assert.equal(done.status, 0, done.stderr);
});
