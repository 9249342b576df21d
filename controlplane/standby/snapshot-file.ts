/** Receives the file of a database and puts it into the place of the copy of a standby. */
import { existsSync } from 'node:fs';
import { type FileHandle, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { makeFolder, moveFile } from '../../api/machinery/replace-file.ts';
import { LOG_FILE } from '../storage/sqlite/storage-thread.ts';
import { FrameError } from './frames.ts';

const INCOMING = 'incoming.db';

/** Removes what a process that was killed has received of a snapshot. */
export const removeIncoming = (directory: string): Promise<void> => rm(join(directory, INCOMING), { force: true });

/** A snapshot that is being received. It ends with `install`, or with `discard`, also after `install` has failed. */
export class SnapshotFile {
  readonly #directory: string;
  readonly #file: FileHandle;
  readonly #sizeBytes: number;
  #received = 0;

  private constructor(directory: string, file: FileHandle, sizeBytes: number) {
    this.#directory = directory;
    this.#file = file;
    this.#sizeBytes = sizeBytes;
  }

  /** Removes what an earlier snapshot left. The file contains every secret of the cluster, so only its owner can read it. */
  static async create(directory: string, sizeBytes: number): Promise<SnapshotFile> {
    await makeFolder(directory, 0o700);
    const path = join(directory, INCOMING);
    await rm(path, { force: true });
    return new SnapshotFile(directory, await open(path, 'wx', 0o600), sizeBytes);
  }

  /** Whether all bytes of the announced size have arrived. */
  get isComplete(): boolean {
    return this.#received === this.#sizeBytes;
  }

  /** Appends a part. Throws a FrameError if the snapshot becomes longer than `sizeBytes`. */
  async add(part: Buffer): Promise<void> {
    if (this.#received + part.length > this.#sizeBytes) throw new FrameError('a snapshot is longer than announced');
    await this.#file.writeFile(part);
    this.#received += part.length;
  }

  /** Replaces the copy, which must be closed. The copy before it stays until the whole snapshot is on the disk. */
  async install(): Promise<void> {
    await this.#file.sync();
    await this.#file.close();
    const target = join(this.#directory, LOG_FILE);
    // A closed copy has no write-ahead log, but a damaged one may. SQLite would apply that log to the new file.
    for (const suffix of ['-wal', '-shm']) if (existsSync(target + suffix)) await rm(target + suffix);
    await moveFile(join(this.#directory, INCOMING), target);
  }

  /** Closes the file and removes it. */
  async discard(): Promise<void> {
    await this.#file.close();
    await rm(join(this.#directory, INCOMING), { force: true });
  }
}
