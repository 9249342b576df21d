import assert from 'node:assert/strict';
import { it } from 'node:test';
import { LoudCommands } from '../../../../../agent/pods/prober/loud-commands.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const LOUD = { outputBytes: 16 << 20 };
const QUIET = { outputBytes: 1000 };

it('commands of probes that print megabytes run one after the other, four seconds for each 16 MiB', async () => {
  const clock = new FakeClock();
  const commands = new LoudCommands(clock);
  const began: string[] = [];
  const probe = (container: string, printed = LOUD): Promise<object> =>
    commands.run(container, () => {
      began.push(container);
      return Promise.resolve(printed);
    });
  for (const container of ['a', 'b', 'c']) await probe(container);
  began.length = 0;
  const results = ['a', 'b', 'c'].map((container) => probe(container));
  await probe('quiet', QUIET);
  assert.deepEqual(await results[0], LOUD, 'the result does not wait for the pause');
  assert.deepEqual(began, ['a', 'quiet']);
  await clock.advance(3900);
  assert.deepEqual(began, ['a', 'quiet']);
  await clock.advance(200);
  await results[1];
  await clock.advance(4000);
  await results[2];
  assert.deepEqual(began, ['a', 'quiet', 'b', 'c']);
});

it('a container whose command prints little again is not delayed any more', async () => {
  const clock = new FakeClock();
  const commands = new LoudCommands(clock);
  await commands.run('a', () => Promise.resolve(LOUD));
  await commands.run('a', () => Promise.resolve(QUIET));
  await commands.run('a', () => Promise.resolve(QUIET));
  await commands.run('a', () => Promise.resolve(QUIET));
});

it('a command that fails ends the turn of its container', async () => {
  const commands = new LoudCommands(new FakeClock());
  await commands.run('a', () => Promise.resolve(LOUD));
  await assert.rejects(
    commands.run('a', () => Promise.reject(new Error('timeout'))),
    /timeout/,
  );
  assert.deepEqual(await commands.run('a', () => Promise.resolve(QUIET)), QUIET);
});
