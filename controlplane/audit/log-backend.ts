/**
 * Writes audit events as lines to a file that is rotated, or to standard output.
 *
 * Lines are written in order, many at once when they come fast. What waits is bounded: beyond the bound events are dropped
 * and counted, and requests go on.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, extname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Logger } from '../../api/component/logger.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import type { AuditBackend } from './audit.ts';
import type { AuditEvent } from './event.ts';

export interface LogBackendOptions {
  /** `-`: standard output. */
  readonly path: string;
  readonly maxSizeBytes: number;
  /** 0: no limit. */
  readonly maxBackups: number;
  readonly maxAgeMs: number;
  readonly compress: boolean;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Events that could not be kept. */
  readonly onDropped: (count: number) => void;
  /** Standard output, in tests another. */
  readonly output?: { write(text: string): void };
}

const MAX_WAITING_BYTES = 64 * 1024 * 1024;

export function logBackend(options: LogBackendOptions): AuditBackend {
  if (options.path === '-') {
    const output = options.output ?? process.stdout;
    return {
      process: (event) => void output.write(`${JSON.stringify(event)}\n`),
      close: () => Promise.resolve(),
    };
  }
  return new LogFile(options);
}

class LogFile implements AuditBackend {
  readonly #options: LogBackendOptions;
  #file: FileHandle | undefined;
  #size = 0;
  #waiting: string[] = [];
  #waitingBytes = 0;
  #writing: Promise<void> | undefined;

  constructor(options: LogBackendOptions) {
    this.#options = options;
  }

  process(event: AuditEvent): void {
    const line = `${JSON.stringify(event)}\n`;
    if (this.#waitingBytes + line.length > MAX_WAITING_BYTES) {
      this.#options.onDropped(1);
      return;
    }
    this.#waiting.push(line);
    this.#waitingBytes += line.length;
    this.#writing ??= this.#drain();
  }

  async close(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
    await this.#file?.close();
    this.#file = undefined;
  }

  async #drain(): Promise<void> {
    // Events of the same turn go out in one write.
    await Promise.resolve();
    try {
      while (this.#waiting.length > 0) {
        const lines = this.#waiting;
        this.#waiting = [];
        this.#waitingBytes = 0;
        await this.#write(lines);
      }
    } finally {
      this.#writing = undefined;
    }
  }

  async #write(lines: readonly string[]): Promise<void> {
    try {
      const bytes = Buffer.from(lines.join(''));
      const file = await this.#fileFor(bytes.length);
      await file.appendFile(bytes);
      this.#size += bytes.length;
    } catch (error) {
      this.#options.onDropped(lines.length);
      this.#options.logger.error({ err: error, path: this.#options.path }, 'Audit events could not be written');
    }
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

  /** `audit.log` becomes `audit-2026-01-02T03-04-05.678.log`; what is too old or too many goes. */
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
      .filter((name) => name.startsWith(`${stem}-`) && (name.endsWith(extension) || name.endsWith(`${extension}.gz`)))
      .sort()
      .reverse();
    for (const [i, name] of backups.entries()) {
      const file = join(dirname(path), name);
      const isOld = maxAgeMs > 0 && clock.now() - (await stat(file)).mtimeMs > maxAgeMs;
      if (isOld || (maxBackups > 0 && i >= maxBackups)) await rm(file, { force: true });
    }
  }
}
