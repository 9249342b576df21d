/** Tests scheduled backups: which ones are kept, what remains after a failure, and that none outlives the command. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, it, test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { directoryPlace } from '../../../../cli/backup/place.ts';
import { checkBackupSchedule, scheduleBackups, takeBackup } from '../../../../cli/backup/schedule.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { until } from '../../../until.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const ORCHLET = join(import.meta.dirname, '../../../../bin/orchlet');

let directory: string;
beforeEach(() => (directory = temporaryFolder()));

const keptTwo = (clock: FakeClock): Parameters<typeof takeBackup>[0] => ({
  place: directoryPlace(directory, clock),
  keep: 2,
  clock,
  logger: silentLogger,
  write: (file) => writeFile(file, 'x'),
});

test('the newest backups are kept, and files of others stay', async () => {
  const clock = new FakeClock(Date.UTC(2026, 0, 2, 3, 0, 0));
  writeFileSync(join(directory, 'notes.txt'), '');
  for (let day = 0; day < 5; day += 1) {
    await takeBackup(keptTwo(clock));
    await clock.advance(24 * 3600_000);
  }
  assert.deepEqual(readdirSync(directory).sort(), [
    'notes.txt',
    'orchlet-20260105T030000Z.tgz',
    'orchlet-20260106T030000Z.tgz',
  ]);
});

test('the newest backup is kept although the clock was set back since the others', async () => {
  const clock = new FakeClock(Date.UTC(2026, 0, 2, 3, 0, 0));
  for (const name of ['orchlet-20990101T030000Z.tgz', 'orchlet-20990102T030000Z.tgz'])
    writeFileSync(join(directory, name), 'x');
  await takeBackup(keptTwo(clock));
  assert.deepEqual(readdirSync(directory).sort(), ['orchlet-20260102T030000Z.tgz', 'orchlet-20990102T030000Z.tgz']);
});

test('a draft is removed after a backup that succeeds, once it is half an hour old', async () => {
  const clock = new FakeClock(Date.UTC(2026, 0, 2, 3, 0, 0));
  for (const [name, ageS] of [
    ['orchlet-20260102T023000Z.tgz.01234567.part', 31 * 60],
    ['orchlet-20260102T024000Z.tgz.01234567.part', 29 * 60],
    ['of-another-program.part', 31 * 60],
  ] as const) {
    writeFileSync(join(directory, name), 'x');
    const changed = clock.now() / 1000 - ageS;
    utimesSync(join(directory, name), changed, changed);
  }
  const take = (write: (file: string) => Promise<void>): Promise<void> =>
    takeBackup({ place: directoryPlace(directory, clock), keep: 1, clock, logger: silentLogger, write });
  await take(() => Promise.reject(new Error('the disk is full')));
  assert.equal(readdirSync(directory).length, 3);
  await take((file) => writeFile(file, 'x'));
  assert.deepEqual(readdirSync(directory).sort(), [
    'of-another-program.part',
    'orchlet-20260102T024000Z.tgz.01234567.part',
    'orchlet-20260102T030000Z.tgz',
  ]);
});

test('a backup that fails removes no older one, and is logged', async () => {
  const clock = new FakeClock(Date.UTC(2026, 0, 2, 3, 0, 0));
  const failures: object[] = [];
  const logger = { ...silentLogger, error: (fields: object) => void failures.push(fields) };
  await takeBackup({
    place: directoryPlace(directory, clock),
    keep: 1,
    clock,
    logger,
    write: (file) => writeFile(file, 'x'),
  });
  await clock.advance(1000);
  await takeBackup({
    place: directoryPlace(directory, clock),
    keep: 1,
    clock,
    logger,
    write: () => Promise.reject(new Error('no room')),
  });
  assert.deepEqual(readdirSync(directory), ['orchlet-20260102T030000Z.tgz']);
  assert.equal(failures.length, 1);
});

test('a schedule that cannot be read is refused', async () => {
  const options = { keep: 1, directory, dataDir: directory, s3: { endpoint: '', region: '' } };
  await assert.rejects(
    checkBackupSchedule({ ...options, schedule: 'every day' }),
    /--backup-schedule "every day" is not a cron schedule/,
  );
  await checkBackupSchedule({ ...options, schedule: '0 3 * * *' });
  await checkBackupSchedule({ ...options, schedule: '' });
});

test('the end of the schedule ends a backup that is being written, and leaves nothing of it', async (t) => {
  const backups = join(directory, 'backups');
  const program = join(directory, 'slow.mjs');
  writeFileSync(
    program,
    `import { writeFileSync } from 'node:fs';
     writeFileSync(process.argv[3] + '.1234abcd.part', String(process.pid));
     setInterval(() => undefined, 1000);`,
  );
  // The directory also contains a file of another process.
  mkdirSync(backups);
  writeFileSync(join(backups, 'other.tgz.1234abcd.part'), '');
  const [, own = ''] = process.argv;
  process.argv[1] = program;
  t.after(() => (process.argv[1] = own));
  const messages: string[] = [];
  const failures: object[] = [];
  const logger = {
    ...silentLogger,
    info: (_: object, message: string) => void messages.push(message),
    error: (fields: object) => void failures.push(fields),
  };
  const options = {
    schedule: '* * * * * *',
    keep: 1,
    directory: backups,
    dataDir: directory,
    s3: { endpoint: '', region: '' },
  };
  const scheduled = await scheduleBackups(options, logger);
  let pid = 0;
  try {
    pid = await until('the process of a backup', () => {
      const name = readdirSync(backups).find((file) => file.startsWith('orchlet-'));
      return name === undefined ? undefined : Number(readFileSync(join(backups, name), 'utf8')) || undefined;
    });
  } finally {
    await scheduled.stop();
  }
  t.after(() => {
    if (isAlive(pid)) process.kill(pid);
  });
  assert.equal(isAlive(pid), false);
  assert.deepEqual(readdirSync(backups), ['other.tgz.1234abcd.part']);
  assert.deepEqual(failures, []);
  assert.equal(messages.at(-1), 'A scheduled backup was stopped before it was complete');
});

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe('a command whose backups cannot be scheduled ends', () => {
  const SCHEDULE = ['--backup-schedule', '0 3 * * *'];
  const start = (
    command: string,
    args: readonly string[],
  ): { readonly code: number | null; readonly output: string } => {
    const memory =
      command === 'up' ? ['--controlplane-arg', 'storage-backend=memory'] : ['--storage-backend', 'memory'];
    const done = spawnSync(
      ORCHLET,
      [command, '--data-dir', join(directory, 'data'), '--secure-port', '0', ...memory, ...args],
      { encoding: 'utf8', timeout: 60_000, killSignal: 'SIGKILL' },
    );
    return { code: done.status, output: `${done.stdout}${done.stderr}` };
  };

  for (const command of ['controlplane', 'up']) {
    it(`orchlet ${command}: before its start where a flag is wrong`, () => {
      const schedule = start(command, ['--backup-schedule', 'every day']);
      assert.equal(schedule.code, 2, schedule.output);
      assert.match(schedule.output, /^orchlet: --backup-schedule "every day" is not a cron schedule$/m);
      const keep = start(command, [...SCHEDULE, '--backup-keep', '0']);
      assert.equal(keep.code, 2, keep.output);
      assert.match(keep.output, /^orchlet: invalid argument "0" for "--backup-keep" flag: must be at least 1$/m);
      assert.equal(existsSync(join(directory, 'data')), false);
    });

    it(`orchlet ${command}: with the control plane where the directory cannot be made`, () => {
      writeFileSync(join(directory, 'file'), '');
      const { code, output } = start(command, [...SCHEDULE, '--backup-dir', join(directory, 'file', 'backups')]);
      assert.equal(code, 1, output);
      assert.match(output, /^orchlet: --backup-dir: ENOTDIR: .*file\/backups/m);
    });
  }
});
