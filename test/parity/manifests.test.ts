/**
 * Compares the responses to the manifests of real projects with those of kube-apiserver. Documents that matched before must
 * still match, and none is omitted.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

test('manifests that were answered alike still are', async () => {
  const script = join(import.meta.dirname, 'parity.ts');
  const flags = ['--disable-warning=ExperimentalWarning', script, '--manifests', '--check', '--diff'];
  const child = spawn(process.execPath, flags, { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  assert.equal(code, 0, output.slice(-20_000));
  assert.match(output, /documents match/);
});
