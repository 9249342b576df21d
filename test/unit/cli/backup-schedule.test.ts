/** Scheduled backups: which ones are kept, and what a failure leaves. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { silentLogger } from '../../../api/component/logger.ts';
import { scheduleBackups, takeBackup } from '../../../cli/backup-schedule.ts';
import { FakeClock } from '../../fakes/fake-clock.ts';

let directory: string;
beforeEach(() => (directory = mkdtempSync(join(tmpdir(), 'orchlet-backups-'))));
afterEach(() => rmSync(directory, { recursive: true, force: true }));

test('the newest backups are kept, and files of others stay', async () => {
  const clock = new FakeClock(Date.UTC(2026, 0, 2, 3, 0, 0));
  writeFileSync(join(directory, 'notes.txt'), '');
  for (let day = 0; day < 5; day += 1) {
    await takeBackup({ directory, keep: 2, clock, logger: silentLogger, write: (file) => writeFile(file, 'x') });
    await clock.advance(24 * 3600_000);
  }
  assert.deepEqual(readdirSync(directory).sort(), [
    'notes.txt',
    'orchlet-20260105T030000Z.tgz',
    'orchlet-20260106T030000Z.tgz',
  ]);
});

test('a backup that fails removes no older one, and is logged', async () => {
  const clock = new FakeClock(Date.UTC(2026, 0, 2, 3, 0, 0));
  const failures: object[] = [];
  const logger = { ...silentLogger, error: (fields: object) => void failures.push(fields) };
  await takeBackup({ directory, keep: 1, clock, logger, write: (file) => writeFile(file, 'x') });
  await clock.advance(1000);
  await takeBackup({ directory, keep: 1, clock, logger, write: () => Promise.reject(new Error('no room')) });
  assert.deepEqual(readdirSync(directory), ['orchlet-20260102T030000Z.tgz']);
  assert.equal(failures.length, 1);
});

test('a schedule that cannot be read is refused', async () => {
  const options = { schedule: 'every day', keep: 1, directory, dataDir: directory };
  await assert.rejects(scheduleBackups(options, silentLogger), /"every day" is not a cron schedule/);
  await assert.rejects(scheduleBackups({ ...options, schedule: '0 3 * * *', keep: 0 }, silentLogger), /at least 1/);
});
