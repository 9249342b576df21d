/** Tests tools that read their commands from the standard input: how their exit is reported. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertSucceeded, runWithInput } from '../../../../agent/network/run-with-input.ts';

test('the tool gets the whole input, and its exit code and errors are reported', async () => {
  const input = 'x'.repeat(1 << 20);
  const counted = await runWithInput('sh', ['-c', 'wc -c >&2; exit 3'], input);
  assert.equal(counted.code, 3);
  assert.equal(Number(counted.stderr), input.length);
});

test('a tool that exits without reading its input is reported by its code, and not by a broken pipe', async () => {
  const exit = await runWithInput('sh', ['-c', 'echo wrong >&2; exit 1'], 'x'.repeat(1 << 20));
  assert.deepEqual(exit, { code: 1, stderr: 'wrong\n' });
});

test('a tool that a signal ends has no code, which counts as a failure', async () => {
  const exit = await runWithInput('sh', ['-c', 'kill -9 $$'], '');
  assert.equal(exit.code, null);
  assert.throws(() => assertSucceeded('sh', exit), /^Error: sh: /);
});

test('a tool that is not installed rejects with ENOENT', async () => {
  await assert.rejects(runWithInput('/nonexistent/tool', [], 'x'), { code: 'ENOENT' });
});

test('the message of a failure has one line, and a bounded part of what the tool printed', () => {
  const exit = { code: 1, stderr: `first\nsecond\n${'x'.repeat(5000)}\n` };
  assert.throws(
    () => assertSucceeded('nft', exit),
    ({ message }: Error) => message.startsWith('nft: first; second; x') && message.length < 1100,
  );
  assert.doesNotThrow(() => assertSucceeded('nft', { code: 0, stderr: 'Warning: table is managed by iptables-nft\n' }));
});
