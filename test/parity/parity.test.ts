/**
 * Every recorded exchange of kube-apiserver matches, unless `differing.txt` lists it. `npm run parity -- --diff --only NAME`
 * shows more.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

/** The time within which a scenario must start. Otherwise the test fails. */
const WITHIN_SECONDS = 240;

test('recorded scenarios match, and none is left out', async () => {
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
