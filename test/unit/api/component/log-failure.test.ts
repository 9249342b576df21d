/** Tests the log when its disk is full. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const LOGGING = join(import.meta.dirname, '../../../../api/component/logging.ts');
const CLOCK = join(import.meta.dirname, '../../../../api/machinery/clock.ts');

for (const format of ['text', 'json']) {
  test(`a ${format} log that cannot be written neither throws nor ends the process, and its check reports that`, () => {
    const program = `
      const { createLogger } = await import(${JSON.stringify(LOGGING)});
      const { systemClock, keepAlive } = await import(${JSON.stringify(CLOCK)});
      const alive = keepAlive();
      const logger = (await createLogger({ format: '${format}', verbosity: 0 })).child({ part: 'test' });
      logger.check();
      logger.error({}, 'Lost');
      await systemClock.sleep(50);
      try { logger.check(); console.log('ok'); } catch (error) { console.log(error.message); }
      alive.cancel();
    `;
    const full = openSync('/dev/full', 'w');
    try {
      const args = ['--input-type=module', '--disable-warning=ExperimentalWarning', '-e', program];
      const done = spawnSync(process.execPath, args, { stdio: ['ignore', 'pipe', full], encoding: 'utf8' });
      assert.equal(done.status, 0);
      assert.match(done.stdout, /^the log cannot be written: .*ENOSPC/);
    } finally {
      closeSync(full);
    }
  });
}
