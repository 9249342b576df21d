/** Where scheduled backups are kept: a directory of this host, or a bucket. Both list and remove files by their names. */
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../api/machinery/clock.ts';
import { s3Bucket } from './s3/bucket.ts';
import { parseS3Location, s3Settings, type S3Flags } from './s3/settings.ts';

/** Begins the name of each scheduled backup, so that a bucket lists them without what else is in it. */
export const BACKUP_PREFIX = 'orchlet-';

export interface BackupPlace {
  /** As `orchlet backup` and `orchlet restore` take it. */
  target(name: string): string;
  /** Makes what must be there before the first backup. */
  prepare(): Promise<void>;
  names(): Promise<readonly string[]>;
  remove(name: string): Promise<void>;
  /** Removes drafts that killed processes left longer ago than any backup takes. */
  removeOldDrafts(isDraft: (name: string) => boolean, olderThanMs: number): Promise<void>;
}

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

/** Throws `CommandError` where the place or its credentials cannot be read. The server is not asked yet. */
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
    // An object is there once it is complete.
    removeOldDrafts: () => Promise.resolve(),
  };
}
