/** The reference pages are those that the tables make. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { pages } from '../../../scripts/generate-docs.ts';

for (const [name, page] of Object.entries(pages)) {
  test(`docs/${name} is what the tables say`, () => {
    const text = readFileSync(new URL(`../../../docs/${name}`, import.meta.url), 'utf8');
    assert.ok(text === page(), `docs/${name} is out of date: run scripts/generate-docs`);
  });
}
