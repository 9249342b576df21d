/** Tests that a followed configuration file is read again after something else has taken its place. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../api/component/metrics.ts';
import { followFile } from '../../../../controlplane/authentication/followed-file.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const places: Readonly<Record<string, (path: string) => void>> = {
  'a FIFO that nobody writes to': (path) => void execFileSync('mkfifo', [path]),
  'a directory': (path) => mkdirSync(path),
  'a device without an end': (path) => symlinkSync('/dev/zero', path),
  'a sparse file of a terabyte': (path) => {
    writeFileSync(path, '');
    truncateSync(path, 2 ** 40);
  },
};

for (const [what, put] of Object.entries(places)) {
  test(`${what} in the place of a configuration changes nothing, and the file that follows it is applied`, async () => {
    const directory = mkdtempSync(join(tmpdir(), 'orchlet-followed-'));
    const path = join(directory, 'config.yaml');
    const taken: string[] = [];
    writeFileSync(path, 'first');
    const file = followFile({
      path,
      what: 'authorization',
      text: 'first',
      take: (text) => void taken.push(text),
      clock: new FakeClock(),
      logger: silentLogger,
      metrics: new MetricsRegistry(),
    });
    try {
      rmSync(path);
      put(path);
      assert.equal(await file.check(), false);
      rmSync(path, { recursive: true });
      writeFileSync(path, 'second');
      assert.equal(await file.check(), true);
      assert.deepEqual(taken, ['second']);
    } finally {
      file.close();
      rmSync(directory, { recursive: true, force: true });
    }
  });
}
