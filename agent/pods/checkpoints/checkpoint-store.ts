/**
 * Stores small JSON values that survive a power failure. A value is replaced by renaming a synced file, so that a reader
 * finds the old value or the new one, but never a part.
 *
 * Values are written in batches, at most one batch every few seconds, and only if they changed. A failing disk is logged
 * once and retried, and `put` and `delete` do not wait for the disk. Directories have mode 0700, files 0600.
 */
import { createHash } from 'node:crypto';
import { readdir, rm, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import { readRegularFile } from '../../base/files/regular-file.ts';
import { DRAFT_SUFFIX, makeFolder, replaceFile, syncFolder } from '../../../api/machinery/replace-file.ts';

interface CheckpointStoreOptions {
  readonly directory: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The delay from the first change to its batch, if there was no recent batch. */
const FIRST_DELAY_MS = 500;
/** The delay between batches. */
const INTERVAL_MS = 5_000;
/** The delay after a batch that could not be written. */
const RETRY_MS = 10_000;
const SUFFIX = '.json';
/** The largest file that is read. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;

/** Returns the value at the time of writing. `undefined` removes the file. */
type Value = () => unknown;

/** Owns the directory. Keys are relative paths. Their parts are encoded as file names, and must be short enough for these. */
export class CheckpointStore {
  readonly #options: CheckpointStoreOptions;
  readonly #dirty = new Map<string, Value>();
  /** Hashes of the files' contents as far as this process wrote them, so that an unchanged value is not written again. */
  readonly #written = new Map<string, string>();
  /** Directories that were changed and are not on the disk yet, also by a batch that failed later. */
  readonly #unsynced = new Set<string>();
  #timer: Timer | undefined;
  #lastBatchMs: number | undefined;
  #writing: Promise<void> | undefined;
  #failing = false;
  #hasRemovedDrafts = false;
  #closed = false;

  constructor(options: CheckpointStoreOptions) {
    this.#options = options;
  }

  /** Stores a value with the next batch, which calls `value` then. `key` is a path of names, such as `pods/<uid>`. */
  put(key: string, value: Value): void {
    this.#dirty.set(key, value);
    this.#schedule();
  }

  /** Deletes the file of the key, with the next batch. */
  delete(key: string): void {
    this.put(key, () => undefined);
  }

  /** Returns the newest value, or `undefined` if there is none or it cannot be read. */
  async get(key: string): Promise<unknown> {
    const pending = this.#dirty.get(key);
    if (pending !== undefined) return pending();
    const path = this.#pathOf(key);
    try {
      return JSON.parse((await readRegularFile(path, MAX_FILE_BYTES)).toString()) as unknown;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
        this.#options.logger.warn({ err: error, path }, 'Cannot read a checkpoint, ignoring it');
      return undefined;
    }
  }

  /**
   * Returns the keys directly below a key, in the form that `get` takes, those with a pending write or deletion included.
   * Rejects if the directory exists but cannot be read.
   */
  async keys(parent: string): Promise<readonly string[]> {
    const directory = join(this.#options.directory, ...parent.split('/').map(encodeName));
    const names = await readdir(directory).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    });
    const found = names
      .filter((name) => name.endsWith(SUFFIX))
      .map((name) => keyName(name.slice(0, -SUFFIX.length)))
      .filter((name) => name !== undefined)
      .map((name) => `${parent}/${name}`);
    const pending = [...this.#dirty.keys()].filter((key) => dirname(key) === parent);
    return [...new Set([...found, ...pending])];
  }

  /** Writes the waiting values. Resolves when they are on the disk or the attempt has failed. */
  async flush(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    await this.#writing;
    if (this.#dirty.size > 0) await this.#batch();
  }

  /** Writes the waiting values as `flush` does. Values that are put later are not written. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.flush();
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#writing !== undefined || this.#closed) return;
    const { clock } = this.#options;
    const sinceMs = this.#lastBatchMs === undefined ? INTERVAL_MS : clock.monotonic() - this.#lastBatchMs;
    const delayMs = this.#failing ? RETRY_MS : Math.max(FIRST_DELAY_MS, INTERVAL_MS - sinceMs);
    this.#timer = clock.after(delayMs, () => {
      this.#timer = undefined;
      background(this.#batch(), { logger: this.#options.logger, what: 'Writing checkpoints' });
    });
  }

  #batch(): Promise<void> {
    this.#writing ??= this.#write().finally(() => {
      this.#writing = undefined;
      this.#lastBatchMs = this.#options.clock.monotonic();
      if (this.#dirty.size > 0) this.#schedule();
    });
    return this.#writing;
  }

  async #write(): Promise<void> {
    try {
      if (!this.#hasRemovedDrafts) await this.#removeDrafts();
      this.#hasRemovedDrafts = true;
      for (const [key, value] of [...this.#dirty]) {
        const path = this.#pathOf(key);
        const content = value();
        const text = content === undefined ? undefined : JSON.stringify(content);
        const hash = text === undefined ? '' : createHash('sha256').update(text).digest('base64');
        if (hash === '' || this.#written.get(key) !== hash) {
          if (await this.#replace(path, text)) this.#unsynced.add(dirname(path));
          if (hash === '') this.#written.delete(key);
          else this.#written.set(key, hash);
        }
        // A value that was put in the meantime belongs to the next batch.
        if (this.#dirty.get(key) === value) this.#dirty.delete(key);
      }
      for (const directory of this.#unsynced) {
        await syncFolder(directory);
        this.#unsynced.delete(directory);
      }
      if (this.#failing) this.#options.logger.info({}, 'The disk accepts checkpoints again');
      this.#failing = false;
    } catch (error) {
      if (!this.#failing)
        this.#options.logger.error(
          { err: error, directory: this.#options.directory },
          'Cannot write checkpoints; later changes are lost after a power failure; check the disk',
        );
      this.#failing = true;
    }
  }

  /** Removes drafts that a killed agent has left, because they can contain secrets and nothing else removes them. */
  async #removeDrafts(): Promise<void> {
    const entries = await readdir(this.#options.directory, { recursive: true, withFileTypes: true }).catch(
      (error: unknown) => {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
        throw error;
      },
    );
    for (const { name, parentPath } of entries)
      if (DRAFT_SUFFIX.test(name)) await rm(join(parentPath, name), { force: true });
  }

  /** Writes the file, or removes it if `text` is `undefined`. Resolves to whether the directory changed. */
  async #replace(path: string, text: string | undefined): Promise<boolean> {
    if (text === undefined) {
      try {
        await unlink(path);
        return true;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
        throw error;
      }
    }
    await makeFolder(dirname(path), 0o700);
    // The batch syncs each directory once.
    await replaceFile(path, text, { mode: 0o600, sync: 'content' });
    return true;
  }

  #pathOf(key: string): string {
    return `${join(this.#options.directory, ...key.split('/').map(encodeName))}${SUFFIX}`;
  }
}

/** Turns the name of an object into a file name that cannot lead out of the directory. */
function encodeName(name: string): string {
  return encodeURIComponent(name).replace(/^\./, '%2E');
}

/** Returns the part of the key that stands in the name of a file; `undefined` for a name that cannot be decoded. */
function keyName(encoded: string): string | undefined {
  try {
    return decodeURIComponent(encoded);
  } catch {
    // `encodeName` writes no such escape.
    return undefined;
  }
}
