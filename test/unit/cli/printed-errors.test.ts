/** Tests that nothing of an error controls the terminal in which it is printed. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { systemClock } from '../../../api/machinery/clock.ts';
import { printable } from '../../../api/meta/quote.ts';
import { run } from '../../../cli/run.ts';

it('control characters of an argument are printed as escapes', async () => {
  let stderr = '';
  const code = await run(['\u001b[2Jgone'], {
    stdout: { write: () => undefined },
    stderr: { write: (text) => (stderr += text) },
    ...{ clock: systemClock, env: {}, isInteractive: false, hideArguments: () => undefined },
    readInput: () => Promise.resolve(''),
    ...{ ownProgram: ['false'], runProgram: () => Promise.resolve(1) },
  });
  assert.equal(code, 2);
  assert.match(stderr, /^orchlet: unknown command: \\x1b\[2Jgone/);
});

it('line breaks, tabs and letters of every script are printed as they are', () => {
  assert.equal(printable('a\n\tb 東京 é'), 'a\n\tb 東京 é');
  assert.equal(printable('\u0000\r\u007f\u009b'), '\\x00\\x0d\\x7f\\x9b');
});
