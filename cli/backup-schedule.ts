/**
 * Backups at the times of `--backup-schedule`, by `orchlet backup` in a process of its own, which also verifies each: nothing
 * of it runs where requests are answered. Only so many are kept, and none is removed before a newer one is complete.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { isSea } from 'node:sea';
import { join, resolve } from 'node:path';
import type { Logger } from '../api/component/logger.ts';
import { formatTime, systemClock, type Clock } from '../api/machinery/clock.ts';
import { CommandError } from './command.ts';

export interface BackupScheduleOptions {
  /** Five fields, as in crontab(5), in the local time zone; `''`: no backups. */
  readonly schedule: string;
  readonly keep: number;
  /** `''`: `backups` in the data directory. */
  readonly directory: string;
  readonly dataDir: string;
}

export const backupOptions = (flags: {
  readonly backupSchedule: string;
  readonly backupKeep: number;
  readonly backupDir: string;
  readonly dataDir: string;
}): BackupScheduleOptions => ({
  schedule: flags.backupSchedule,
  keep: flags.backupKeep,
  directory: flags.backupDir,
  dataDir: flags.dataDir,
});

export interface ScheduledBackups {
  stop(): Promise<void>;
}

const NAME = /^orchlet-\d{8}T\d{6}Z\.tgz$/;
const LONGEST_MS = 30 * 60_000;

/** Throws where the schedule cannot be read. For before the start: node-cron is not loaded where it is not needed. */
export async function checkBackupSchedule({ schedule }: BackupScheduleOptions): Promise<void> {
  if (schedule === '') return;
  const { default: cron } = await import('node-cron');
  if (!cron.validate(schedule))
    throw new CommandError(`--backup-schedule ${JSON.stringify(schedule)} is not a cron schedule`);
}

/** The schedule was checked before. */
export async function scheduleBackups(options: BackupScheduleOptions, logger: Logger): Promise<ScheduledBackups> {
  if (options.schedule === '') return { stop: () => Promise.resolve() };
  const { default: cron } = await import('node-cron');
  const directory = backupDirectory(options);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const run = (): Promise<void> =>
    takeBackup({
      directory,
      keep: options.keep,
      clock: systemClock,
      logger,
      write: (file) => spawnBackup(file, options),
    });
  const task = cron.schedule(options.schedule, run, { name: 'backup', noOverlap: true });
  logger.info(
    { schedule: options.schedule, directory, next: task.getNextRun()?.toISOString() },
    'Backups are scheduled',
  );
  return {
    async stop() {
      await task.destroy();
    },
  };
}

const backupDirectory = ({ directory, dataDir }: BackupScheduleOptions): string =>
  directory === '' ? join(resolve(dataDir), 'backups') : resolve(directory);

export interface TakeBackupOptions {
  readonly directory: string;
  readonly keep: number;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Writes and verifies one; rejects where that fails, and leaves no file. */
  readonly write: (file: string) => Promise<void>;
}

/** One backup, and the end of those that are too many. Never rejects: the next one is due anyway. */
export async function takeBackup({ directory, keep, clock, logger, write }: TakeBackupOptions): Promise<void> {
  const file = join(directory, `orchlet-${formatTime(clock.now()).replaceAll(/[-:]/g, '')}.tgz`);
  try {
    await write(file);
    logger.info({ file }, 'A backup was written and verified');
    const old = (await readdir(directory)).filter((name) => NAME.test(name)).sort();
    for (const name of old.slice(0, Math.max(0, old.length - keep))) await rm(join(directory, name));
  } catch (error) {
    logger.error({ err: error, file }, 'A scheduled backup failed');
  }
}

async function spawnBackup(file: string, { dataDir }: BackupScheduleOptions): Promise<void> {
  const program = isSea() ? [] : [...process.execArgv, process.argv[1] ?? ''];
  const child = spawn(process.execPath, [...program, 'backup', file, '--data-dir', dataDir], {
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: LONGEST_MS,
  });
  let errors = '';
  child.stderr.on('data', (part: Buffer) => (errors = (errors + part.toString()).slice(-2000)));
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`orchlet backup exited with ${code ?? 'a signal'}: ${errors.trim()}`);
}
