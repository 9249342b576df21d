/** Tests concurrent writes of a state file. */
import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { StateWriter } from '../../../../../agent/resources/managers/checkpoint-file.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { SmallDisk } from '../../../../small-disk.ts';
import { until } from '../../../../until.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

test('a value is on the disk when its write resolves, also if it comes in the moment in which the write before ends', async () => {
  const root = temporaryFolder();
  for (let ticks = 0; ticks < 12; ticks += 1) {
    const directory = join(root, String(ticks));
    const path = join(directory, 'state');
    writeFileSync(directory, 'a file stands where the directory should be');
    const failed = Promise.withResolvers<void>();
    const error = (): void => {
      rmSync(directory);
      failed.resolve();
    };
    const writer = new StateWriter({
      path,
      what: 'a state',
      clock: new FakeClock(),
      logger: { ...silentLogger, error },
    });
    const first = writer.write(() => ({ value: 1 }));
    await failed.promise;
    for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve();
    await writer.write(() => ({ value: 2 }));
    assert.equal(readFileSync(path, 'utf8'), '{"value":2}', `it came after ${ticks} ticks`);
    await first;
  }
});

test('a value that did not fit on the disk is written when there is room, without a further change', async (t) => {
  const disk = new SmallDisk('1m');
  t.after(() => disk.remove());
  if (!disk.isMounted) return t.skip('needs the right to mount');
  const clock = new FakeClock();
  const lines: string[] = [];
  const log = (_fields: object, message: string): void => void lines.push(message);
  const logger = { ...silentLogger, error: log, info: log };
  const path = join(disk.directory, 'state');
  const writer = new StateWriter({ path, what: 'a state', clock, logger });
  await writer.write(() => ({ value: 1 }));
  disk.fill();
  await writer.write(() => ({ value: 2 }));
  await writer.write(() => ({ value: 3 }));
  assert.equal(readFileSync(path, 'utf8'), '{"value":1}');
  disk.empty();
  await until(
    'the newest value is written',
    async () => {
      await clock.advance(10_000);
      return readFileSync(path, 'utf8') === '{"value":3}';
    },
    10_000,
  );
  await until('two log lines', () => lines.length === 2, 10_000);
  assert.deepEqual(lines, ['Cannot write a state, retrying', 'Wrote a state again']);
});
