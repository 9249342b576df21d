/** The program's entry: an exception or rejection that nothing handles is logged with its stack and ends the process. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { INTERNAL_ERROR_EXIT_CODE } from '../../../../cli/process/last-resort.ts';

const ROOT = join(import.meta.dirname, '../../../..');

/** Runs `orchlet version`, and then the fault. */
function runWith(fault: string): { readonly status: number | null; readonly stderr: string } {
  const preload = `data:text/javascript,process.once('beforeExit', function boom() { ${fault} })`;
  const args = ['--disable-warning=ExperimentalWarning', `--import=${preload}`, join(ROOT, 'cli/main.ts'), 'version'];
  return spawnSync(process.execPath, args, { encoding: 'utf8' });
}

for (const [name, fault] of [
  ['an unhandled rejection', "Promise.reject(new Error('boom'))"],
  ['an uncaught exception', "setImmediate(() => { throw new Error('boom') })"],
] as const) {
  test(`${name} is logged with its stack and exits with a code of its own`, () => {
    const { status, stderr } = runWith(fault);
    assert.equal(status, INTERNAL_ERROR_EXIT_CODE);
    assert.match(stderr, /^orchlet: The program failed unexpectedly and exits: Error: boom\n +at .*boom/m);
  });
}

test('a command that succeeds is not disturbed', () => {
  assert.equal(runWith('').status, 0);
});
