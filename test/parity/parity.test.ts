/** What matched the recorded answers of the reference still does. `npm run parity -- --diff --only NAME` shows more. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

/** Scenarios that have not begun by then are left to the next run. */
const WITHIN_SECONDS = 100;

test('recorded scenarios that matched still match', async () => {
  const script = join(import.meta.dirname, 'parity.ts');
  const flags = ['--check', '--known', '--diff', '--parallel', '6', '--within', String(WITHIN_SECONDS)];
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', script, ...flags], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  assert.equal(code, 0, output.slice(-20_000));
  assert.match(output, /scenarios match/);
});
