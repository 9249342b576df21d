/**
 * Defines the places of scheduled backups: a directory of this host, or a bucket. Both list and remove files by their names.
 */
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../api/machinery/clock.ts';
import { s3Bucket } from '../s3/bucket.ts';
import { parseS3Location, s3Settings, type S3Flags } from '../s3/settings.ts';

/** The prefix of the names of scheduled backups, so that a bucket can list them without other objects. */
export const BACKUP_PREFIX = 'orchlet-';

/** Where backups are kept. Operations reject with the error of the directory or of S3. */
export interface BackupPlace {
  /** The name that `orchlet backup` and `orchlet restore` accept. */
  target(name: string): string;
  /** Creates what the first backup requires. */
  prepare(): Promise<void>;
  names(): Promise<readonly string[]>;
  remove(name: string): Promise<void>;
  /** Removes drafts that are older than `olderThanMs`, which killed processes have left. */
  removeOldDrafts(isDraft: (name: string) => boolean, olderThanMs: number): Promise<void>;
}

/** Keeps backups in a directory. One that does not exist is created so that only its owner can read it. */
export function directoryPlace(directory: string, clock: Clock): BackupPlace {
  return {
    target: (name) => join(directory, name),
    async prepare() {
      await mkdir(directory, { recursive: true, mode: 0o700 });
    },
    names: () => readdir(directory),
    remove: (name) => rm(join(directory, name)),
    async removeOldDrafts(isDraft, olderThanMs) {
      for (const name of (await readdir(directory)).filter(isDraft)) {
        const path = join(directory, name);
        const { mtimeMs } = await stat(path);
        if (clock.now() - mtimeMs > olderThanMs) await rm(path, { force: true });
      }
    },
  };
}

/**
 * Creates the access to a place in S3. Rejects with `UsageError` for an invalid place, and with `CommandError` for invalid or
 * missing settings. Does not connect to the server.
 */
export async function s3Place(place: string, flags: S3Flags, clock: Clock): Promise<BackupPlace> {
  const { bucket: name, key } = parseS3Location(place);
  const prefix = key === '' ? '' : `${key}/`;
  const open = async () => s3Bucket(await s3Settings(name, flags, process.env), clock);
  await open();
  return {
    target: (file) => `s3://${name}/${prefix}${file}`,
    prepare: () => Promise.resolve(),
    async names() {
      const keys = await (await open()).list(`${prefix}${BACKUP_PREFIX}`);
      return keys.map((found) => found.slice(prefix.length));
    },
    async remove(file) {
      await (await open()).remove(`${prefix}${file}`);
    },
    // An object is only visible once it is complete.
    removeOldDrafts: () => Promise.resolve(),
  };
}
