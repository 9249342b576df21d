/** A command finishes as if nothing had happened when the reader of its output is gone, and fails if its output is lost. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const MAIN = join(import.meta.dirname, '../../../cli/main.ts');

/** Runs `orchlet completion bash` with the standard output that the shell gives it, and prints its exit code to stderr. */
function runWith(redirection: string): string {
  const command = `"${process.execPath}" --disable-warning=ExperimentalWarning "${MAIN}" completion bash`;
  const script = redirection.replace('COMMAND', `{ ${command}; echo "code $?" >&2; }`);
  return spawnSync('sh', ['-c', script], { encoding: 'utf8' }).stderr;
}

test('a command whose output nobody reads ends with its own exit code and without a message', () => {
  // The pipe has no reader any more when the program writes: it takes longer to start than `true`.
  assert.equal(runWith('COMMAND | true'), 'code 0\n');
});

test('a command whose output cannot be written says so and fails', { skip: !existsSync('/dev/full') }, () => {
  assert.match(runWith('COMMAND > /dev/full'), /^orchlet: cannot write the output: ENOSPC: .*\ncode 1\n$/);
});
