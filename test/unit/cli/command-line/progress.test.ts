import assert from 'node:assert/strict';
import { truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { largeStep, step } from '../../../../cli/command-line/progress.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';
import { until } from '../../../until.ts';

const MIB = 1024 * 1024;

function output() {
  let text = '';
  return { stderr: { write: (more: string) => (text += more) }, text: () => text };
}

test('a step is reported after two seconds and then every ten, with the size of the file that it writes', async () => {
  const { stderr, text } = output();
  const clock = new FakeClock();
  const file = join(temporaryFolder(), 'archive');
  const work = Promise.withResolvers<string>();
  const running = step({ stderr, clock }, 'Writing the archive', () => work.promise, { file });
  await clock.advance(1999);
  assert.equal(text(), '');
  await clock.advance(1);
  await until('the first line', () => text() === 'Writing the archive: 2 s\n');
  writeFileSync(file, '');
  truncateSync(file, 3 * MIB);
  await until('the second line', async () => {
    await clock.advance(1000);
    return text().split('\n').length > 2;
  });
  assert.match(text(), /^Writing the archive: 2 s\nWriting the archive: 1\d s, 3 MiB\n$/);
  work.resolve('done');
  assert.equal(await running, 'done');
  assert.equal(clock.pendingTimers, 0);
});

test('a short step is not reported, and its failure is that of the work', async () => {
  const { stderr, text } = output();
  const clock = new FakeClock();
  const failed = step({ stderr, clock }, 'Copying', () => Promise.reject(new Error('no room')));
  await assert.rejects(failed, /no room/);
  assert.deepEqual([text(), clock.pendingTimers], ['', 0]);
});

test('a step on a large file is reported before it, because it reports nothing itself', async () => {
  const { stderr, text } = output();
  const file = join(temporaryFolder(), 'database');
  writeFileSync(file, '');
  assert.equal(await largeStep({ stderr }, 'Examining the database', file, () => 1), 1);
  truncateSync(file, 100 * MIB);
  let seen = '';
  await largeStep({ stderr }, 'Examining the database', file, () => (seen = text()));
  assert.equal(seen, 'Examining the database, 100 MiB\n');
});
