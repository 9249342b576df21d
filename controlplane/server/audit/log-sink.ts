/**
 * Writes audit events as lines to a rotated file, or to standard output.
 *
 * Lines are written in order, and pending lines are written together. The pending data is bounded: beyond the bound,
 * events are rejected.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, extname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Clock } from '../../../api/machinery/clock.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import type { AuditEvent } from './event.ts';
import type { EventSink } from './event-sink.ts';

interface LogSinkOptions {
  /** `-` means standard output. */
  readonly path: string;
  /** The size beyond which the file is rotated. 0 means no limit. */
  readonly maxSizeBytes: number;
  /** The number of backups that are kept. 0 means no limit. */
  readonly maxBackups: number;
  /** The age beyond which backups are removed. 0 means no limit. */
  readonly maxAgeMs: number;
  readonly compress: boolean;
  readonly format: (event: AuditEvent) => string;
  readonly clock: Clock;
  /** Standard output by default. */
  readonly output?: { write(text: string): void };
}

const MAX_WAITING_BYTES = 64 * 1024 * 1024;
/** The beginning of what a backup's name has after the name of the file: the time of the rotation. */
const BACKUP_TIME = /^-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}/;

/** Whether a file is a backup of the log. Others, such as `audit-webhook.log` beside `audit.log`, are not its own. */
function isBackup(name: string, stem: string, extension: string): boolean {
  const ending = name.startsWith(stem) ? name.slice(stem.length) : '';
  const suffix = ending.replace(BACKUP_TIME, '');
  return suffix !== ending && (suffix === extension || suffix === `${extension}.gz`);
}

/**
 * Returns a sink that writes events to a file, which it rotates. The path `-` is standard output, which is neither rotated nor
 * bounded.
 */
export function logSink(options: LogSinkOptions): EventSink {
  if (options.path !== '-') return new LogFile(options);
  const output = options.output ?? process.stdout;
  return {
    write: (events) => {
      output.write(events.map((event) => `${options.format(event)}\n`).join(''));
      return Promise.resolve();
    },
    close: () => Promise.resolve(),
  };
}

class LogFile implements EventSink {
  readonly #options: LogSinkOptions;
  #file: FileHandle | undefined;
  #size = 0;
  #waiting: string[] = [];
  #waitingBytes = 0;
  /** Settles with the write that contains the pending lines. */
  #next: Promise<void> | undefined;
  readonly #writes = new SerialQueue();

  constructor(options: LogSinkOptions) {
    this.#options = options;
  }

  write(events: readonly AuditEvent[]): Promise<void> {
    const lines = events.map((event) => `${this.#options.format(event)}\n`);
    const bytes = lines.reduce((sum, line) => sum + line.length, 0);
    if (this.#waitingBytes + bytes > MAX_WAITING_BYTES)
      return Promise.reject(new Error(`writing the audit log ${this.#options.path} is too slow`));
    this.#waiting.push(...lines);
    this.#waitingBytes += bytes;
    // Events that arrive before the write starts are included in it.
    this.#next ??= this.#writes.run(() => this.#flush());
    return this.#next;
  }

  async close(): Promise<void> {
    while (this.#writes.length > 0) await this.#writes.drained();
    await this.#file?.close();
    this.#file = undefined;
  }

  async #flush(): Promise<void> {
    const lines = this.#waiting;
    this.#waiting = [];
    this.#waitingBytes = 0;
    this.#next = undefined;
    const bytes = Buffer.from(lines.join(''));
    const file = await this.#fileFor(bytes.length);
    await file.appendFile(bytes);
    this.#size += bytes.length;
  }

  async #fileFor(bytes: number): Promise<FileHandle> {
    const { path, maxSizeBytes } = this.#options;
    if (this.#file === undefined) {
      await mkdir(dirname(path), { recursive: true });
      this.#file = await open(path, 'a', 0o600);
      this.#size = (await this.#file.stat()).size;
    }
    if (this.#size === 0 || maxSizeBytes <= 0 || this.#size + bytes <= maxSizeBytes) return this.#file;
    await this.#file.close();
    this.#file = undefined;
    await this.#rotate();
    this.#file = await open(path, 'a', 0o600);
    this.#size = 0;
    return this.#file;
  }

  /** Renames `audit.log` to `audit-2026-01-02T03-04-05.678.log`, and removes backups that are too old or too many. */
  async #rotate(): Promise<void> {
    const { path, clock, compress, maxBackups, maxAgeMs } = this.#options;
    const extension = extname(path);
    const stem = basename(path, extension);
    const time = new Date(clock.now()).toISOString().slice(0, -1).replaceAll(':', '-');
    const backup = join(dirname(path), `${stem}-${time}${extension}`);
    await rename(path, backup);
    if (compress) {
      await pipeline(createReadStream(backup), createGzip(), createWriteStream(`${backup}.gz`, { mode: 0o600 }));
      await rm(backup);
    }
    const backups = (await readdir(dirname(path)))
      .filter((name) => isBackup(name, stem, extension))
      .sort()
      .reverse();
    for (const [i, name] of backups.entries()) {
      const file = join(dirname(path), name);
      const isOld = maxAgeMs > 0 && clock.now() - (await stat(file)).mtimeMs > maxAgeMs;
      if (isOld || (maxBackups > 0 && i >= maxBackups)) await rm(file, { force: true });
    }
  }
}
