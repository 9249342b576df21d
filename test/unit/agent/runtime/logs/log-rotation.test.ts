import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFile, lstat, readdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { LogRotation } from '../../../../../agent/runtime/logs/log-rotation.ts';
import { type ContainerStatus, RuntimeError } from '../../../../../agent/runtime/runtime.ts';
import type { ContainerId } from '../../../../../agent/runtime/runtime-identity.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

describe('rotating container logs', () => {
  let directory = '';
  let log = '';
  let clock: FakeClock;
  let reopen: () => Promise<void>;
  let state: ContainerStatus['state'];

  beforeEach(async () => {
    directory = temporaryFolder();
    log = join(directory, '0.log');
    clock = new FakeClock(Date.parse('2026-01-02T03:04:05Z'));
    reopen = () => writeFile(log, '');
    state = 'running';
  });

  const rotation = (maxFiles: number): LogRotation =>
    new LogRotation({
      runtime: {
        listContainers: () =>
          Promise.resolve([{ id: 'c' as ContainerId, state, logPath: log } as unknown as ContainerStatus]),
        reopenLog: () => reopen(),
      },
      clock,
      logger: silentLogger,
      maxSizeBytes: 10,
      maxFiles,
      checkMs: 1000,
      workers: 1,
    });
  const once = (maxFiles = 3): Promise<void> => rotation(maxFiles).rotateAll(new AbortController().signal);
  const files = async (): Promise<readonly string[]> => (await readdir(directory)).toSorted();

  it('leaves a log alone that has not grown', async () => {
    await writeFile(log, 'short');
    await once();
    assert.deepEqual(await files(), ['0.log']);
  });

  it('leaves the log of an ended container alone', async () => {
    await writeFile(log, 'long enough to go');
    state = 'exited';
    await once();
    assert.deepEqual(await files(), ['0.log']);
  });

  it('leaves a rotated file alone that is too large to be compressed, as a sparse one can be, and goes on', async () => {
    await writeFile(`${log}.20260101-000000`, '');
    await truncate(`${log}.20260101-000000`, 2 ** 42);
    await writeFile(log, 'long enough to go');
    await once(4);
    assert.deepEqual(await files(), ['0.log', '0.log.20260101-000000', '0.log.20260102-030405']);
  });

  it('moves a log away, and compresses the one before', async () => {
    await writeFile(log, 'the first content');
    await once();
    assert.deepEqual(await files(), ['0.log', '0.log.20260102-030405']);
    await appendFile(log, 'the second content');
    await clock.advance(1000);
    await once();
    assert.deepEqual(await files(), ['0.log', '0.log.20260102-030405.gz', '0.log.20260102-030406']);
    const compressed = await readFile(join(directory, '0.log.20260102-030405.gz'));
    assert.equal(gunzipSync(compressed).toString(), 'the first content');
  });

  it('keeps the configured number of files', async () => {
    await writeFile(log, 'content of a log');
    for (let turn = 0; turn < 5; turn++) {
      await once(3);
      await appendFile(log, `content of turn ${turn}`);
      await clock.advance(1000);
    }
    assert.deepEqual(await files(), ['0.log', '0.log.20260102-030408.gz', '0.log.20260102-030409']);
    await once(2);
    assert.deepEqual(await files(), ['0.log', '0.log.20260102-030410']);
  });

  it('completes the rotation of a killed agent', async () => {
    await writeFile(log, 'content of a log');
    await writeFile(`${log}.20260101-000000`, 'compressed already');
    await writeFile(`${log}.20260101-000000.gz`, 'compressed');
    await writeFile(`${log}.20260101-000001`, 'not yet');
    await writeFile(`${log}.20260101-000001.tmp`, 'half');
    await once(5);
    assert.deepEqual(await files(), [
      '0.log',
      '0.log.20260101-000000.gz',
      '0.log.20260101-000001.gz',
      '0.log.20260102-030405',
    ]);
  });

  it('continues if an entry among the rotated files is not a regular file', { timeout: 20_000 }, async () => {
    await writeFile(log, 'content of a log');
    execFileSync('mkfifo', [`${log}.20260101-000000`]);
    await symlink('/nowhere', `${log}.20260101-000001`);
    await writeFile(`${log}.20260101-000002`, 'a file');
    await once(5);
    assert.deepEqual(await files(), [
      '0.log',
      '0.log.20260101-000000',
      '0.log.20260101-000001',
      '0.log.20260101-000002.gz',
      '0.log.20260102-030405',
    ]);
    await appendFile(log, 'the second content');
    await clock.advance(1000);
    await once(3);
    assert.deepEqual(await files(), ['0.log', '0.log.20260102-030405.gz', '0.log.20260102-030406']);
  });

  it('does not write over a file of the same second', async () => {
    await writeFile(log, 'content of a log');
    await once();
    await appendFile(log, 'and more content');
    await once();
    assert.equal(await readFile(log, 'utf8'), 'and more content');
  });

  it('takes the log back when the runtime does not open a new one', async () => {
    await writeFile(log, 'content of a log');
    reopen = () => Promise.reject(new RuntimeError('not-found', 'it has ended'));
    await once();
    assert.deepEqual(await files(), ['0.log']);
    assert.equal(await readFile(log, 'utf8'), 'content of a log');
  });

  it('makes the runtime open a new log if the log was removed', async () => {
    await once();
    assert.deepEqual(await files(), ['0.log']);
  });

  it('compresses and moves nothing that a link or a FIFO leads to', { timeout: 20_000 }, async () => {
    const outside = temporaryFolder();
    try {
      await writeFile(join(outside, 'secret'), 'the secret of the host');
      await writeFile(log, 'long enough to go');
      await symlink(join(outside, 'secret'), `${log}.20250101-000000`);
      await once();
      assert.equal(
        (await files()).some((name) => name.endsWith('.gz')),
        false,
      );
      await rm(`${log}.20250101-000000`, { force: true });
      await rm(log, { force: true });
      execFileSync('mkfifo', [log]);
      await once();
      await rm(log);
      await symlink(join(outside, 'secret'), log);
      await once();
      assert.equal((await lstat(log)).isSymbolicLink(), true);
      assert.deepEqual(await readdir(outside), ['secret']);
    } finally {
      await rm(outside, { recursive: true, force: true });
    }
  });
});
