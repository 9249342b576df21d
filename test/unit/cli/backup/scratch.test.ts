/** Killed backups leave temporary files below the data directory, which a later command removes. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { makeBackupScratch, removeBackupLeftovers } from '../../../../cli/backup/scratch.ts';
import { scheduleBackups } from '../../../../cli/backup/schedule.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const STARTED = Date.UTC(2026, 0, 2);

let data: string;
const names = (): readonly string[] => readdirSync(join(data, 'backup')).sort();
const leave = (name: string, at: number): void => {
  const path = join(data, 'backup', name);
  writeFileSync(path, 'secret');
  utimesSync(path, at / 1000, at / 1000);
};

beforeEach(() => {
  data = temporaryFolder();
  mkdirSync(join(data, 'backup'));
});

test('directories of processes that are gone are removed, those of running ones stay', async (t) => {
  // The process looks like an orchlet in /proc.
  const running = spawn('sh', ['-c', 'sleep 100; true', 'orchlet'], { stdio: 'ignore' });
  t.after(() => running.kill('SIGKILL'));
  const gone = spawn('sh', ['-c', 'true', 'orchlet'], { stdio: 'ignore' });
  await once(gone, 'exit');
  for (const { pid } of [running, gone]) mkdirSync(join(data, 'backup', `work-${pid}-abcdef`));
  await removeBackupLeftovers(data, STARTED, silentLogger);
  assert.deepEqual(names(), [`work-${running.pid}-abcdef`]);
});

test('copies from before the start are removed, newer ones and what is not of backups stay', async () => {
  leave('0123456789abcdef.db', STARTED - 1000);
  leave('fedcba9876543210.db', STARTED + 1000);
  leave('notes.db', STARTED - 1000);
  mkdirSync(join(data, 'backup/stage-abcdef'));
  utimesSync(join(data, 'backup/stage-abcdef'), STARTED / 1000 - 1, STARTED / 1000 - 1);
  await removeBackupLeftovers(data, STARTED, silentLogger);
  assert.deepEqual(names(), ['fedcba9876543210.db', 'notes.db']);
});

test('a start without a schedule removes them too, and one without such a directory is no fault', async () => {
  leave('0123456789abcdef.db', STARTED);
  const options = { schedule: '', keep: 1, directory: '', dataDir: data, s3: { endpoint: '', region: '' } };
  const { stop } = await scheduleBackups(options, silentLogger);
  await stop();
  assert.deepEqual(names(), []);
  rmSync(join(data, 'backup'), { recursive: true });
  await (await scheduleBackups(options, silentLogger)).stop();
});

test('the directory of a backup is for its owner alone', async () => {
  rmSync(join(data, 'backup'), { recursive: true });
  const scratch = await makeBackupScratch(data);
  assert.match(scratch, new RegExp(`/backup/work-${process.pid}-`));
  assert.deepEqual([statSync(scratch).mode & 0o777, statSync(join(data, 'backup')).mode & 0o777], [0o700, 0o700]);
});
