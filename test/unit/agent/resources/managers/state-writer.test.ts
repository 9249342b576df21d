/** Writes of a state file that come at any moment. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { StateWriter } from '../../../../../agent/resources/managers/checkpoint-file.ts';

test('a value is on the disk when its write resolves, also if it comes in the moment in which the write before ends', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'state-writer-'));
  t.after(() => rmSync(root, { recursive: true, force: true }));
  for (let ticks = 0; ticks < 12; ticks += 1) {
    const directory = join(root, String(ticks));
    const path = join(directory, 'state');
    writeFileSync(directory, 'a file stands where the directory should be');
    const failed = Promise.withResolvers<void>();
    const writer = new StateWriter(path, () => {
      rmSync(directory);
      failed.resolve();
    });
    const first = writer.write(() => ({ value: 1 }));
    await failed.promise;
    for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve();
    await writer.write(() => ({ value: 2 }));
    assert.equal(readFileSync(path, 'utf8'), '{"value":2}', `it came after ${ticks} ticks`);
    await first;
  }
});
