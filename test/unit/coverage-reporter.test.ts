import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { coverageLines } from '../coverage-reporter.ts';

const ROOT = join(import.meta.dirname, '../..');

test('files that no test loads count as lines that were not executed', () => {
  const cli = globSync('cli/**/*.ts', { cwd: ROOT }).length;
  const files = [{ path: join(ROOT, 'cli/main.ts'), totalLineCount: 10, coveredLineCount: 10 }];
  const line = coverageLines(files).find((one) => one.startsWith('cli: ')) ?? '';
  assert.match(line, new RegExp(`^cli: 0\\.\\d % of \\d+ lines, ${cli - 1} of ${cli} files not loaded$`));
});
