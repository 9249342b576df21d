/** Tests how the coverage of several test runs is merged, and which files count as types alone. */
import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { test } from 'node:test';
import { hasTypesAlone, mergeCoverage } from '../../../scripts/coverage-reporter.ts';

const run = (path: string, executed: readonly number[]): string => `${JSON.stringify({ path, total: 10, executed })}\n`;

test('files that no test loads count as lines that were not executed', () => {
  const cli = globSync('cli/**/*.ts', { cwd: `${import.meta.dirname}/../../..` }).length;
  const { summary } = mergeCoverage([run('cli/main.ts', [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])]);
  const line = summary.find((one) => one.startsWith('cli: ')) ?? '';
  assert.match(line, new RegExp(`^cli: 0\\.\\d % of \\d+ lines, ${cli - 1} of ${cli} files not loaded$`));
});

test('a line counts as executed if any run executed it; the others are listed as ranges', () => {
  const { missing } = mergeCoverage([run('cli/main.ts', [1, 2, 3]), run('cli/main.ts', [3, 7, 10])]);
  assert.ok(missing.includes('cli/main.ts: 4-6, 8-9'));
});

test('a file has types alone if comments are all that is left without them', () => {
  const types = `/** A page. */\nimport type { A } from './a.ts';\nexport interface B { readonly a: A }\nexport type { A };\n// The end.\n`;
  assert.ok(hasTypesAlone(types));
  assert.ok(!hasTypesAlone(`${types}export const KINDS = 3;\n`));
  assert.ok(!hasTypesAlone(`import './effect.ts';\n${types}`));
});
