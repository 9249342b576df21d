import assert from 'node:assert/strict';
import { it } from 'node:test';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ProgramExit, programOutput } from '../../../../api/machinery/program-output.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';
import { until } from '../../../until.ts';

/** Runs a script, which may write the ids of its processes to `$PIDS`. */
function start(script: string, { input = 'ignore' as 'ignore' | { text: string } } = {}) {
  const file = join(temporaryFolder(), 'pids');
  const pids = (): number[] => readFileSync(file, 'utf8').trim().split('\n').map(Number);
  const clock = new FakeClock();
  const running: Promise<ProgramExit> = programOutput({
    ...{ command: 'sh', args: ['-c', script], env: { ...process.env, PIDS: file }, input, errors: 'pipe' },
    ...{ clock, what: 'the program', largestOutputBytes: 1 << 20, timeoutMs: 60_000 },
  });
  return { clock, running, pids };
}

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    // There is no such process.
    return false;
  }
};

it('a program that prints without an end, and does not care for signals to terminate, is killed', async () => {
  const { running, pids } = start(`trap '' TERM; echo $$ > $PIDS; while :; do echo more; done`);
  await assert.rejects(running, /^Error: the program printed more than 1048576 bytes$/);
  await until('the end of the program', () => !isAlive(pids()[0] ?? 0));
});

it('a program that does not exit is killed, and not waited for though another process has its output open', async (t) => {
  const { clock, running, pids } = start('sleep 300 & printf "%s\\n" $$ $! > $PIDS.new; mv $PIDS.new $PIDS; wait');
  const [own = 0, other = 0] = await until('the processes of the program', () => pids());
  t.after(() => process.kill(other));
  const rejected = assert.rejects(running, /^Error: the program did not exit within 60 s$/);
  await clock.advance(60_000);
  await rejected;
  await until('the end of the program', () => !isAlive(own));
});

it('the output of a program is complete when it has exited, though another process has its output open', async (t) => {
  const { clock, running, pids } = start('sleep 300 & echo $! > $PIDS; echo answer');
  await until('the exit of the program', () => clock.pendingTimers === 2);
  const [other = 0] = pids();
  t.after(() => process.kill(other));
  await clock.advance(5_000);
  assert.deepEqual(await running, { code: 0, signal: null, output: 'answer\n', errors: '' });
});

it('input, output, errors and exit code are passed on, and characters that arrive in parts are put together', async () => {
  const text = `a${'é'.repeat(200_000)}`;
  const { running } = start('cat; echo no >&2; exit 3', { input: { text } });
  assert.deepEqual(await running, { code: 3, signal: null, output: text, errors: 'no\n' });
});

it('a program that reads nothing of a long input is no error', async () => {
  const { running } = start('exec <&-; echo done', { input: { text: 'x'.repeat(1 << 20) } });
  assert.equal((await running).output, 'done\n');
});
