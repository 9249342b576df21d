/**
 * Runs `orchlet backup`, which also verifies the backup, at the times of `--backup-schedule` in a process of its own, so that
 * the process that serves requests is not slowed down. The newest backups are kept, and none is removed before a newer one is
 * complete.
 */
import { quoteText } from '../../api/meta/quote.ts';
import { spawn } from 'node:child_process';
import { readdir, rm } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import { formatTime, systemClock, type Clock } from '../../api/machinery/clock.ts';
import { BACKUP_PREFIX, type BackupPlace, directoryPlace, s3Place } from './place.ts';
import { removeBackupLeftovers } from './scratch.ts';
import { UsageError } from '../../api/component/flags.ts';
import { ownProgram } from '../command-line/own-program.ts';
import { isS3, type S3Flags } from '../s3/settings.ts';

interface BackupScheduleOptions {
  /** Five fields, as in crontab(5), in the local time zone. If empty, no backups are written. */
  readonly schedule: string;
  readonly keep: number;
  /** A directory or `s3://BUCKET/PREFIX`. If empty, it is `backups` in the data directory. */
  readonly directory: string;
  readonly dataDir: string;
  readonly s3: S3Flags;
  /** The flags of `orchlet backup` for objects in etcd. None if they are in the database. */
  readonly etcd?: readonly string[];
}

/** Takes the options of the schedule from the flags of the control plane. */
export const backupOptions = (flags: {
  readonly backupSchedule: string;
  readonly backupKeep: number;
  readonly backupDir: string;
  readonly dataDir: string;
  readonly backupS3Endpoint: string;
  readonly backupS3Region: string;
  readonly etcd?: string;
  readonly etcdServers?: readonly string[];
  readonly etcdPrefix?: string;
  readonly etcdCafile?: string;
  readonly etcdCertfile?: string;
  readonly etcdKeyfile?: string;
  readonly encryptionProviderConfig?: string;
}): BackupScheduleOptions => ({
  schedule: flags.backupSchedule,
  keep: flags.backupKeep,
  directory: flags.backupDir,
  dataDir: flags.dataDir,
  s3: { endpoint: flags.backupS3Endpoint, region: flags.backupS3Region },
  etcd: etcdFlagsOf(flags),
});

/** Returns the flags of `orchlet backup` for objects in etcd. */
function etcdFlagsOf({ etcd, etcdServers = [], ...flags }: Parameters<typeof backupOptions>[0]): readonly string[] {
  if (etcdServers.length === 0 && etcd !== 'embedded') return [];
  const etcdValues = {
    'etcd-servers': etcdServers.join(),
    'etcd-prefix': flags.etcdPrefix,
    'etcd-cafile': flags.etcdCafile,
    'etcd-certfile': flags.etcdCertfile,
    'etcd-keyfile': flags.etcdKeyfile,
    'encryption-provider-config': flags.encryptionProviderConfig,
  };
  return Object.entries(etcdValues).flatMap(([name, value = '']) => (value === '' ? [] : [`--${name}=${value}`]));
}

/** A running schedule. */
export interface ScheduledBackups {
  /** Stops the schedule, and a running backup; resolves when its process has exited. */
  stop(): Promise<void>;
}

const NAME = /^orchlet-\d{8}T\d{6}Z\.tgz$/;
const DRAFT = /^orchlet-\d{8}T\d{6}Z\.tgz\.[0-9a-f]{8}\.part$/;
/** The time after which a backup that still runs is killed. Older drafts belong to no running backup. */
const MAX_BACKUP_MS = 30 * 60_000;

/** Rejects if the schedule or the place in S3 is invalid. */
export async function checkBackupSchedule(options: BackupScheduleOptions): Promise<void> {
  const { schedule } = options;
  if (schedule === '') return;
  const { default: cron } = await import('node-cron');
  if (!cron.validate(schedule)) throw new UsageError(`--backup-schedule ${quoteText(schedule)} is not a cron schedule`);
  await backupPlace(options);
}

/**
 * Writes backups by the schedule, which the caller has checked, until `stop` is called. Removes leftovers of killed backups in
 * any case. Rejects if the directory of backups cannot be created.
 */
export async function scheduleBackups(options: BackupScheduleOptions, logger: Logger): Promise<ScheduledBackups> {
  await removeBackupLeftovers(options.dataDir, performance.timeOrigin, logger);
  if (options.schedule === '') return { stop: () => Promise.resolve() };
  const { default: cron } = await import('node-cron');
  const place = await backupPlace(options);
  await place.prepare();
  const stopping = new AbortController();
  const { signal } = stopping;
  let current: Promise<void> = Promise.resolve();
  const run = async (): Promise<void> => {
    current = takeBackup({
      place,
      keep: options.keep,
      clock: systemClock,
      logger,
      signal,
      write: (file) => spawnBackup(file, options, signal),
    });
    await current;
  };
  const task = cron.schedule(options.schedule, run, { name: 'backup', noOverlap: true });
  logger.info(
    { schedule: options.schedule, place: place.target(''), next: task.getNextRun()?.toISOString() },
    'Backups are scheduled',
  );
  return {
    async stop() {
      await task.destroy();
      stopping.abort(new Error('no more backups are taken'));
      await current;
    },
  };
}

async function backupPlace({ directory, dataDir, s3 }: BackupScheduleOptions): Promise<BackupPlace> {
  if (isS3(directory)) return s3Place(directory, s3, systemClock);
  return directoryPlace(directory === '' ? join(resolve(dataDir), 'backups') : resolve(directory), systemClock);
}

interface TakeBackupOptions {
  readonly place: BackupPlace;
  readonly keep: number;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Aborts when the backup is no longer needed; then its exit is no failure. */
  readonly signal?: AbortSignal;
  /** Writes and verifies a backup; rejects, without leaving a file, if that fails. */
  readonly write: (file: string) => Promise<void>;
}

/** Writes a backup and removes surplus ones. Never rejects, because the next backup is due anyway. */
export async function takeBackup({ place, keep, clock, logger, signal, write }: TakeBackupOptions): Promise<void> {
  const written = `${BACKUP_PREFIX}${formatTime(clock.now()).replaceAll(/[-:]/g, '')}.tgz`;
  const file = place.target(written);
  try {
    await write(file);
    logger.info({ file }, 'A backup was written and verified');
  } catch (error) {
    if (signal?.aborted === true) logger.info({ file }, 'A scheduled backup was stopped before it was complete');
    else logger.error({ err: error, file }, 'A scheduled backup failed');
    return;
  }
  try {
    // After the clock was set back, others have later names than the newest one.
    const others = (await place.names()).filter((name) => NAME.test(name) && name !== written).sort();
    for (const name of others.slice(0, Math.max(0, others.length - (keep - 1)))) await place.remove(name);
    await place.removeOldDrafts((name) => DRAFT.test(name), MAX_BACKUP_MS);
  } catch (error) {
    logger.error({ err: error, place: place.target('') }, 'Older backups cannot be removed');
  }
}

async function spawnBackup(
  file: string,
  { dataDir, s3, etcd = [] }: BackupScheduleOptions,
  signal: AbortSignal,
): Promise<void> {
  const [program, ...programArguments] = ownProgram();
  const flags = [
    `--data-dir=${dataDir}`,
    `--backup-s3-endpoint=${s3.endpoint}`,
    `--backup-s3-region=${s3.region}`,
    ...etcd,
  ];
  const child = spawn(program, [...programArguments, 'backup', file, ...flags], {
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: MAX_BACKUP_MS,
    signal,
  });
  const closed = Promise.withResolvers<number | null>();
  // A started child always emits `close`, also after an abort, which is reported as an error at once.
  child.on('error', (error) => {
    if (child.pid === undefined) closed.reject(error);
  });
  child.on('close', closed.resolve);
  let errors = '';
  // `undefined` if the process could not be started because file descriptors are exhausted.
  child.stderr?.on('data', (part: Buffer) => (errors = (errors + part.toString()).slice(-2000)));
  const code = await closed.promise;
  if (code === 0) return;
  if (!isS3(file)) await removePartial(file);
  throw new Error(`orchlet backup exited with ${code ?? 'a signal'}: ${errors.trim()}`);
}

/**
 * Removes the unfinished file that a killed process leaves. Its name contains the second of this backup, so no other backup
 * has it.
 */
async function removePartial(file: string): Promise<void> {
  const directory = dirname(file);
  const prefix = `${basename(file)}.`;
  // The output of the process has the cause of the failure, also if the directory is gone.
  const names = await readdir(directory).catch(() => []);
  const left = names.filter((name) => name.startsWith(prefix) && name.endsWith('.part'));
  for (const name of left) await rm(join(directory, name), { force: true });
}
