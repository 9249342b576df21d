/**
 * Small JSON values that outlive a power cut: one file a key below a directory of the root directory, replaced by renaming a
 * file that is on the disk already, so that a reader finds the old value or the new one and never a part.
 *
 * Writes come in batches, at most one every few seconds, and only for what changed; what is put in between is the newest. A
 * disk that takes no writes is told once and tried again: nobody waits for a checkpoint. Directories are 0700, files 0600.
 */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Clock, Timer } from '../../../api/machinery/clock.ts';
import { DRAFT_SUFFIX, replaceFile, syncFolder } from '../../../api/machinery/replace-file.ts';

export interface CheckpointStoreOptions {
  readonly directory: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** From the first change to its batch, when there was none lately. */
const SOON_MS = 500;
/** Between batches. */
const INTERVAL_MS = 5_000;
/** After a batch that could not be written. */
const RETRY_MS = 10_000;
const SUFFIX = '.json';

/** The value when it is written; `undefined` removes the file. */
type Value = () => unknown;

export class CheckpointStore {
  readonly #options: CheckpointStoreOptions;
  readonly #dirty = new Map<string, Value>();
  /** Hashes of what stands in the files, as far as it was written here: what did not change is not written again. */
  readonly #written = new Map<string, string>();
  #timer: Timer | undefined;
  #lastBatchMs: number | undefined;
  #writing: Promise<void> | undefined;
  #failing = false;
  #hasRemovedDrafts = false;
  #closed = false;

  constructor(options: CheckpointStoreOptions) {
    this.#options = options;
  }

  /** `key` is a path of names, `pods/<uid>`. The value is asked for when its batch is written. */
  put(key: string, value: Value): void {
    this.#dirty.set(key, value);
    this.#schedule();
  }

  delete(key: string): void {
    this.put(key, () => undefined);
  }

  /** What was put last; `undefined` where there is nothing, or nothing that can be read. */
  async get(key: string): Promise<unknown> {
    const pending = this.#dirty.get(key);
    if (pending !== undefined) return pending();
    const path = this.#pathOf(key);
    try {
      return JSON.parse(await readFile(path, 'utf8')) as unknown;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
        this.#options.logger.warn({ err: error, path }, 'A checkpoint cannot be read; it is left out');
      return undefined;
    }
  }

  /** The keys directly below one, as `get` takes them. */
  async keys(parent: string): Promise<readonly string[]> {
    const directory = join(this.#options.directory, ...parent.split('/').map(encodeName));
    const names = await readdir(directory).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    });
    const found = names
      .filter((name) => name.endsWith(SUFFIX))
      .map((name) => `${parent}/${decodeURIComponent(name.slice(0, -SUFFIX.length))}`);
    const pending = [...this.#dirty.keys()].filter((key) => dirname(key) === parent);
    return [...new Set([...found, ...pending])];
  }

  /** Writes what is waiting; resolves when it is on the disk, or could not be put there. */
  async flush(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    await this.#writing;
    if (this.#dirty.size > 0) await this.#batch();
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.flush();
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#writing !== undefined || this.#closed) return;
    const { clock } = this.#options;
    const sinceMs = this.#lastBatchMs === undefined ? INTERVAL_MS : clock.monotonic() - this.#lastBatchMs;
    const delayMs = this.#failing ? RETRY_MS : Math.max(SOON_MS, INTERVAL_MS - sinceMs);
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
    const directories = new Set<string>();
    try {
      if (!this.#hasRemovedDrafts) await this.#removeDrafts();
      this.#hasRemovedDrafts = true;
      for (const [key, value] of [...this.#dirty]) {
        const path = this.#pathOf(key);
        const content = value();
        const text = content === undefined ? undefined : JSON.stringify(content);
        const hash = text === undefined ? '' : createHash('sha256').update(text).digest('base64');
        if (hash === '' || this.#written.get(key) !== hash) {
          if (await this.#replace(path, text)) directories.add(dirname(path));
          if (hash === '') this.#written.delete(key);
          else this.#written.set(key, hash);
        }
        // Put again meanwhile: that is of the next batch.
        if (this.#dirty.get(key) === value) this.#dirty.delete(key);
      }
      for (const directory of directories) await syncFolder(directory);
      if (this.#failing) this.#options.logger.info({}, 'Checkpoints are written again');
      this.#failing = false;
    } catch (error) {
      if (!this.#failing)
        this.#options.logger.error(
          { err: error, directory: this.#options.directory },
          'Checkpoints cannot be written: what changes from now on is not known after a power cut; see to the disk',
        );
      this.#failing = true;
    }
  }

  /** An agent that was killed while it wrote leaves the draft of a file, perhaps of a secret, which nobody would remove. */
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

  /** Whether the directory changed. */
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
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    // The batch syncs each folder once.
    await replaceFile(path, text, { mode: 0o600, sync: 'content' });
    return true;
  }

  #pathOf(key: string): string {
    return `${join(this.#options.directory, ...key.split('/').map(encodeName))}${SUFFIX}`;
  }
}

/** A name of an object as the name of a file: nothing in it leads out of the directory. */
function encodeName(name: string): string {
  return encodeURIComponent(name).replace(/^\./, '%2E');
}
