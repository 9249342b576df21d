/** Tests what `scripts/test` knows of a run, and what it says at its end. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { test } from 'node:test';
import { closingLines, failedFiles, merged } from '../../../scripts/test-report.ts';
import { type Outcome, ROOT, runTests } from '../../../scripts/test-run.ts';
import type { FileResult } from '../../../scripts/results-reporter.ts';
import { temporaryFolder } from '../../temporary-folder.ts';

const NONE = { tests: 0, suites: 0, passed: 0, failed: 0, cancelled: 0, skipped: 0, todo: 0 };
const result = (name: string, more: Partial<FileResult> = {}): FileResult => ({
  file: join(ROOT, name),
  counts: { ...NONE, tests: 1, passed: 1 },
  durationMs: 1,
  failures: [],
  ...more,
});
const failed = (name: string, error = 'Error: no'): FileResult =>
  result(name, { counts: { ...NONE, tests: 1, failed: 1 }, failures: [{ name: 'a test', error }] });

/** Runs files with these texts. */
async function outcomeOf(texts: Readonly<Record<string, string>>): Promise<Outcome & { readonly output: string }> {
  const folder = temporaryFolder();
  for (const [name, text] of Object.entries(texts)) writeFileSync(join(folder, name), text);
  let output = '';
  const outcome = await runTests(
    Object.keys(texts).map((name) => relative(ROOT, join(folder, name))),
    // By the variable, node:test detects that it is itself run by node:test.
    { env: { NODE_TEST_CONTEXT: undefined }, concurrency: 1, onOutput: (text) => (output = text) },
  );
  return { ...outcome, output };
}

test('a run counts the tests of each file, and has the errors of those that failed', async () => {
  const { code, results, output } = await outcomeOf({
    'good.test.mjs': `import { test } from 'node:test'; test('passes', () => {}); test.skip('waits', () => {});`,
    'bad.test.mjs': `import { describe, test } from 'node:test';
      describe('a suite', () => { test('throws', () => { throw new Error('the reason'); }); });`,
  });
  assert.equal(code, 1);
  assert.match(output, /✔ passes/);
  const [bad, good] = results.toSorted((a, b) => a.file.localeCompare(b.file));
  assert.deepEqual([good?.counts.passed, good?.counts.skipped, good?.failures], [1, 1, []]);
  assert.equal(bad?.counts.failed, 1);
  assert.deepEqual(
    bad.failures.map(({ name }) => name),
    ['throws'],
  );
  assert.match(bad.failures[0]?.error ?? '', /^Error: the reason\n {4}at /);
});

test('files that cannot be loaded, exit, or fail in a hook have failed', async () => {
  const outcome = await outcomeOf({
    'load.test.mjs': `import './nowhere.mjs';`,
    'exit.test.mjs': `import { test } from 'node:test'; test('exits', () => process.exit(3));`,
    'hook.test.mjs': `import { before, describe, test } from 'node:test';
      describe('a suite', () => { before(() => { throw new Error('in the hook'); }); test('waits', () => {}); });`,
  });
  assert.equal(outcome.code, 1);
  assert.equal(failedFiles(outcome).length, 3);
  assert.match(closingLines(outcome, [], 0).join('\n'), /Error: in the hook/);
});

test('a run that was ended has failed in the files without a result', async () => {
  const folder = temporaryFolder();
  const file = join(folder, 'hanging.test.mjs');
  writeFileSync(
    file,
    `import { test } from 'node:test'; test('hangs', () => new Promise(() => setInterval(() => {}, 9)));`,
  );
  const outcome = await runTests([relative(ROOT, file)], {
    ...{ env: { NODE_TEST_CONTEXT: undefined }, concurrency: 1, onOutput: () => undefined },
    signal: AbortSignal.timeout(1000),
  });
  assert.notEqual(outcome.code, 0);
  assert.deepEqual(failedFiles(outcome), [relative(ROOT, file)]);
});

test('a later result of a file replaces the earlier one', () => {
  const first = { code: 1, results: [failed('a.test.ts'), result('b.test.ts')] };
  const both = merged(first, { code: 0, results: [result('a.test.ts')] });
  assert.deepEqual(failedFiles(first), ['a.test.ts']);
  assert.deepEqual([failedFiles(both), both.results.length, both.code], [[], 2, 1]);
});

test('the closing lines name failed files with their errors, flaky files and the counts of all runs', () => {
  const long = Array.from({ length: 100 }, (_, number) => `line ${number}`).join('\n');
  const results = [
    failed('x/a.test.ts', long),
    result('x/b.test.ts', { durationMs: 61_000, processorMs: 7_250 }),
    failed('x/c.test.ts'),
  ];
  const lines = closingLines({ code: 1, results }, ['x/b.test.ts'], 90_000);
  const text = lines.join('\n');
  assert.ok(lines.length < 200, `${lines.length} lines`);
  assert.match(text, /^ +61\.0 +7\.3 {2}x\/b\.test\.ts$/m);
  assert.match(text, /^✖ x\/a\.test\.ts: a test\n {4}line 0\n/m);
  assert.doesNotMatch(text, /line 50/);
  assert.match(text, /^2 files failed: x\/a\.test\.ts, x\/c\.test\.ts$/m);
  assert.match(text, /^1 flaky, passed only when repeated: x\/b\.test\.ts$/m);
  assert.match(
    text,
    /^ℹ tests 3\nℹ suites 0\nℹ pass 1\nℹ fail 2\nℹ cancelled 0\nℹ skipped 0\nℹ todo 0\nℹ duration_ms 90000$/m,
  );
});

test('many failures are cut so that the counts stay near the end of a log', () => {
  const results = Array.from({ length: 300 }, (_, number) => failed(`x/${number}.test.ts`, 'no\n'.repeat(100)));
  const lines = closingLines({ code: 1, results }, [], 0);
  assert.ok(lines.length < 200, `${lines.length} lines`);
  assert.ok(lines.includes('and 288 more failures'));
});
