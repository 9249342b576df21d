/**
 * Writes a container's output as a CRI log (`<time> <stream> <P|F> <text>`) by following the engine's own log. After a
 * restart of the agent, the writer continues after the last line in the file.
 *
 * Its memory is bounded by one chunk and one incomplete entry.
 */
import { constants } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import type { Logger } from '../../../api/component/logger.ts';
import { IrregularFileError } from '../../base/files/beneath.ts';
import { inLogFolder, makeLogFolder, openLog, rotatedNames } from '../logs/log-files.ts';
import type { DockerClient } from './docker-client.ts';
import { readFrames, type Frame } from './stream-frames.ts';

/** The length of `2026-01-02T03:04:05.000000000Z`, which a space follows. */
const TIME_LENGTH = 30;
const TAIL_BYTES = 64 * 1024;
/** The engine splits longer lines into entries of this size. */
const ENTRY_BYTES = 16 * 1024;
const NEWLINE = 10;
const RETRY_MS = 1_000;
const APPEND = constants.O_RDWR | constants.O_CREAT | constants.O_APPEND;

interface LogSource {
  readonly id: string;
  readonly tty: boolean;
  readonly logPath: string;
}

interface LogWriterDeps {
  readonly client: DockerClient;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Whether the container still runs and may write more output. */
  readonly running: (id: string) => Promise<boolean>;
}

interface Position {
  readonly time: string;
  /** The number of entries with exactly this time that are already in the file. */
  readonly count: number;
}

/** Writes one log, from its construction on. */
export class LogWriter {
  readonly #source: LogSource;
  readonly #deps: LogWriterDeps;
  readonly #abort = new AbortController();
  #file: FileHandle | undefined;
  #appending: Promise<unknown> = Promise.resolve();
  /** Resolves when the container's whole output is in the file, after `close`, or after a failure, which is logged. */
  readonly finished: Promise<void>;

  constructor(source: LogSource, deps: LogWriterDeps) {
    this.#source = source;
    this.#deps = deps;
    this.finished = this.#run().catch((error: unknown) => {
      if (!this.#abort.signal.aborted)
        deps.logger.warn(
          { err: error, container: source.id, path: source.logPath },
          'Cannot write the log of a container',
        );
    });
  }

  /**
   * Called after the log file was renamed. Creates a new file at once and writes all further output to it. Does nothing if the
   * writer has no open file. Rejects if the new file cannot be opened.
   */
  async reopen(): Promise<void> {
    const moved = this.#file;
    if (moved === undefined) return;
    const next = await openLog(this.#source.logPath, APPEND, 0o640);
    // The writer finished meanwhile and closed its file, or another call has reopened it.
    if (this.#file !== moved) {
      await next.close();
      return;
    }
    this.#file = next;
    await this.#appending;
    await moved.close();
  }

  /** Stops the writer, and resolves when its file is closed. */
  async close(): Promise<void> {
    this.#abort.abort();
    await this.finished;
  }

  async #run(): Promise<void> {
    const { signal } = this.#abort;
    try {
      let position = await this.#open();
      while (!signal.aborted) {
        // The state is read before the log, so that the log of a container that exits meanwhile is followed once more.
        const running = await this.#deps.running(this.#source.id);
        try {
          position = await this.#follow(position);
        } catch (error) {
          if (signal.aborted) return;
          this.#deps.logger.debug(
            { err: error, container: this.#source.id },
            'The log stream of a container was interrupted',
          );
          if ((error as { statusCode?: number }).statusCode === 404) return;
          // The content of the file decides where to continue. A full disk may have left an incomplete line.
          position = await this.#reread(position);
        }
        if (!running) return;
        if (await this.#deps.running(this.#source.id)) await pause(this.#deps.clock, RETRY_MS, signal);
      }
    } finally {
      // The field is cleared before the file is closed, so that a concurrent reopening stops.
      const file = this.#file;
      this.#file = undefined;
      await file?.close();
    }
  }

  async #open(): Promise<Position> {
    await makeLogFolder(this.#source.logPath);
    this.#file = await openLog(this.#source.logPath, APPEND, 0o640);
    return this.#reread(undefined);
  }

  /**
   * Returns the position at the end of the file. Truncates an incomplete line that a killed agent or a full disk left. If the
   * file shows no position, returns `last`, and without it the position of the rotated files.
   */
  async #reread(last: Position | undefined): Promise<Position> {
    const file = this.#file;
    if (file === undefined) return last ?? lastPosition('');
    const tail = await tailOf(file);
    const torn = tail.length - (tail.lastIndexOf('\n') + 1);
    if (torn > 0) await file.truncate((await file.stat()).size - torn);
    const position = lastPosition(tail);
    if (position.time !== '') return position;
    return last ?? (await this.#positionBefore());
  }

  /**
   * Finds the last position in the rotated files. After a rotation the current file may be empty, and the newest rotated file
   * has it.
   */
  async #positionBefore(): Promise<Position> {
    const { logPath } = this.#source;
    const names = await inLogFolder(logPath, rotatedNames);
    for (const name of names.filter((other) => !/\.(gz|tmp)$/.test(other)).toReversed()) {
      // A pod with a host path may put a link or a FIFO there.
      const file = await openLog(join(dirname(logPath), name)).catch(ifIrregular);
      if (file === undefined) continue;
      try {
        return lastPosition(await tailOf(file));
      } finally {
        await file.close();
      }
    }
    return lastPosition('');
  }

  async #follow(from: Position): Promise<Position> {
    const options = {
      follow: true as const,
      stdout: true,
      stderr: true,
      timestamps: true,
      ...(from.time === '' ? {} : { since: epochSeconds(from.time) as unknown as number }),
      abortSignal: this.#abort.signal,
    };
    const stream = (await this.#deps.client.docker
      .getContainer(this.#source.id)
      .logs(options)) as NodeJS.ReadableStream & AsyncIterable<Buffer>;
    const entries = new EntryParser(from);
    const frames: AsyncIterable<Frame> = this.#source.tty ? rawFrames(stream) : readFrames(stream);
    for await (const frame of frames) {
      const text = this.#source.tty ? entries.raw(frame.payload) : entries.frame(frame);
      if (text.length > 0) await this.#append(text);
    }
    const lastLine = entries.flush();
    if (lastLine.length > 0) await this.#append(lastLine);
    return entries.position;
  }

  async #append(text: Buffer): Promise<void> {
    const written = this.#file?.appendFile(text);
    // The caller of this method gets the failure. `reopen` only waits for the end of the write.
    this.#appending = written?.catch(() => undefined) ?? Promise.resolve();
    await written;
  }
}

function ifIrregular(error: unknown): undefined {
  if (error instanceof IrregularFileError) return undefined;
  throw error;
}

async function tailOf(file: FileHandle): Promise<string> {
  const { size } = await file.stat();
  const length = Math.min(size, TAIL_BYTES);
  const tail = Buffer.alloc(length);
  await file.read(tail, 0, length, size - length);
  return tail.toString('latin1');
}

async function* rawFrames(source: AsyncIterable<Buffer>): AsyncGenerator<Frame> {
  for await (const payload of source) yield { stream: 'stdout', payload, last: true };
}

function epochSeconds(time: string): string {
  const seconds = Math.floor(Date.parse(`${time.slice(0, 19)}Z`) / 1000);
  return `${seconds}.${time.slice(20, 29)}`;
}

/** Returns the time of the last complete line in a CRI log, and how many lines have this time. Pure. */
export function lastPosition(tail: string): Position {
  const times = tail
    .split('\n')
    .slice(0, -1)
    .map((line) => line.slice(0, TIME_LENGTH))
    .filter((time) => /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$/.test(time));
  const time = times.at(-1) ?? '';
  return { time, count: time === '' ? 0 : times.filter((other) => other === time).length };
}

/** Converts the engine's entries into CRI log lines. Skips the entries that the file already has. Performs no I/O. */
export class EntryParser {
  #skip: Position;
  #last: Position;
  /** The bytes of an incomplete entry that came without a frame. */
  #pending: Buffer = Buffer.alloc(0);
  /** The pieces of an incomplete frame, which are joined once. */
  readonly #parts: Buffer[] = [];
  /** The stream of the latest frame. Output without frames counts as stdout. */
  #stream: Frame['stream'] = 'stdout';

  constructor(from: Position) {
    this.#skip = from;
    this.#last = from;
  }

  /** The position after the last complete entry. */
  get position(): Position {
    return this.#last;
  }

  /** Returns the lines of a frame. Without a terminal one frame is one entry: a time and the text. */
  frame(frame: Frame): Buffer {
    this.#stream = frame.stream;
    this.#parts.push(frame.payload);
    if (!frame.last) return Buffer.alloc(0);
    return this.#line(frame.stream, Buffer.concat(this.#parts.splice(0)));
  }

  /**
   * Returns the lines of raw output. With a terminal there are no frames, and an entry ends with a newline, or after 16 KiB of
   * text.
   */
  raw(chunk: Buffer): Buffer {
    let pending: Buffer = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    const lines: Buffer[] = [];
    while (pending.length > TIME_LENGTH) {
      const newline = pending.indexOf(NEWLINE, TIME_LENGTH);
      const longest = TIME_LENGTH + 1 + ENTRY_BYTES;
      if (newline === -1 && pending.length <= longest) break;
      const end = newline !== -1 && newline < longest ? newline + 1 : longest;
      lines.push(this.#line('stdout', pending.subarray(0, end)));
      pending = pending.subarray(end);
    }
    this.#pending = Buffer.from(pending);
    return Buffer.concat(lines);
  }

  /** Returns the line that the stream has not ended; empty if there is none. */
  flush(): Buffer {
    const incomplete = Buffer.concat([this.#pending, ...this.#parts.splice(0)]);
    this.#pending = Buffer.alloc(0);
    return incomplete.length > TIME_LENGTH ? this.#line(this.#stream, incomplete) : Buffer.alloc(0);
  }

  #line(stream: string, entry: Buffer): Buffer {
    const time = entry.toString('latin1', 0, TIME_LENGTH);
    if (time === this.#skip.time && this.#skip.count > 0) {
      this.#skip = { time, count: this.#skip.count - 1 };
      return Buffer.alloc(0);
    }
    this.#last = { time, count: time === this.#last.time ? this.#last.count + 1 : 1 };
    const text = entry.subarray(TIME_LENGTH + 1);
    const full = text.at(-1) === NEWLINE;
    const parts = [Buffer.from(`${time} ${stream} ${full ? 'F' : 'P'} `, 'latin1'), text];
    if (!full) parts.push(Buffer.from('\n'));
    return Buffer.concat(parts);
  }
}
