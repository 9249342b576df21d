/** Tests that a followed configuration file is read again after something else has taken its place. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import { followFile } from '../../../../../controlplane/security/files/followed-file.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

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
      parse: (text) => () => void taken.push(text),
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
      assert.equal(await file.check(), false);
      assert.equal(await file.check(), true);
      assert.deepEqual(taken, ['second']);
    } finally {
      file.close();
      rmSync(directory, { recursive: true, force: true });
    }
  });
}

function followed(t: TestContext, parse: (text: string) => () => Promise<void> | void) {
  const directory = mkdtempSync(join(tmpdir(), 'orchlet-followed-'));
  const path = join(directory, 'config.yaml');
  writeFileSync(path, 'first');
  const clock = new FakeClock();
  const options = { path, what: 'authentication', text: 'first', parse } as const;
  const file = followFile({ ...options, clock, logger: silentLogger, metrics: new MetricsRegistry() });
  t.after(() => {
    file.close();
    rmSync(directory, { recursive: true, force: true });
  });
  return { clock, file, write: (text: string) => writeFileSync(path, text) };
}

test('a configuration that is read while it is written is not applied', async (t) => {
  const taken: string[] = [];
  const { file, write } = followed(t, (text) => () => void taken.push(text));
  write('second');
  assert.equal(await file.check(), false);
  write('second: but with rules');
  assert.equal(await file.check(), false);
  assert.equal(await file.check(), true);
  assert.deepEqual(taken, ['second: but with rules']);
});

test('a configuration that cannot be applied yet is tried again, so that what it removes does not stay in force', async (t) => {
  let attempts = 0;
  const { clock, file, write } = followed(t, () => () => {
    attempts++;
    if (attempts === 1) throw new Error('the keys of the issuer cannot be fetched');
  });
  write('second');
  for (const _again of [1, 2, 3]) assert.equal(await file.check(), false);
  await clock.advance(60_000);
  await file.check();
  assert.equal(attempts, 2);
  for (const _again of [1, 2]) assert.equal(await file.check(), false);
});

test('an invalid configuration is parsed once', async (t) => {
  let attempts = 0;
  const { clock, file, write } = followed(t, () => {
    attempts++;
    throw new Error('invalid');
  });
  write('second');
  for (const _again of [1, 2, 3]) assert.equal(await file.check(), false);
  await clock.advance(600_000);
  assert.equal(await file.check(), false);
  assert.equal(attempts, 1);
});
