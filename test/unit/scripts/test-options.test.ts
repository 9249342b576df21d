/** Tests the options of `scripts/test`. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

const PROGRAM = join(import.meta.dirname, '../../../scripts/test.ts');

for (const lanes of ['0', '1.5', 'many'])
  test(`--lanes ${lanes} is refused, because no integration test would run`, () => {
    const args = ['--disable-warning=ExperimentalWarning', PROGRAM, '--no-checks', '--lanes', lanes, 'no.test.ts'];
    const { status, stderr, stdout } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    assert.notEqual(status, 0);
    assert.match(stderr, new RegExp(`--lanes ${lanes} is not a number of lanes`));
    assert.equal(stdout, '');
  });
