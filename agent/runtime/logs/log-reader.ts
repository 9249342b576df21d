/**
 * Reads a container's log for `kubectl logs`: tail, since, limit, timestamps and one stream, as the kubelet does. Follows the
 * log over rotations until the container has terminated. Memory is bounded by one chunk and one line, and a slow reader delays
 * the reading.
 */
import type { FileHandle } from 'node:fs/promises';
import { watch } from 'node:fs';
import { dirname } from 'node:path';
import { writeOut } from '../../../api/http/back-pressure.ts';
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import { quote } from '../../../api/meta/field-error.ts';
import { LogError, type LogParser, parserOf, utcOf } from './log-entry.ts';
import { openLog } from './log-files.ts';

const NEWLINE = 10;
const CHUNK_BYTES = 64 * 1024;
/** The longest entry. Runtimes split lines into entries of 16 KiB, so a longer one is invalid. */
const MAX_LINE_BYTES = 1024 * 1024;
/** The poll interval for the log of a running container that has no log yet. */
const APPEARANCE_MS = 100;
/** How long a rotated log may still be written. */
const SETTLE_MS = 300;
/** The poll interval where no file events arrive, as on remote filesystems. */
const POLL_MS = 1_000;

/** The query of `kubectl logs`. */
export interface LogOptions {
  readonly follow: boolean;
  readonly previous: boolean;
  readonly timestamps: boolean;
  readonly sinceSeconds?: number;
  /** The time from which on entries are shown, in RFC 3339. */
  readonly sinceTime?: string;
  readonly tailLines?: number;
  readonly limitBytes?: number;
  readonly stream?: 'All' | 'Stdout' | 'Stderr';
}

/** Where the log goes. The signal aborts the reading, for example when the client has gone. */
interface LogSink {
  readonly out: NodeJS.WritableStream;
  readonly signal: AbortSignal;
}

interface LogReadDeps {
  readonly clock: Clock;
  /** Resolves to whether the container still runs. */
  readonly isRunning: () => Promise<boolean>;
}

interface LineFilter {
  /** The start time in UTC without the zone, with nine digits of the second. */
  readonly sinceText: string;
  readonly timestamps: boolean;
  readonly stream: string | undefined;
  /** The format of the log, which its first entry decides. */
  parser: LogParser | undefined;
  /** Whether the last entry ended its line. Only the first part of a line has a timestamp. */
  atLineStart: boolean;
}

/**
 * Writes the log at the path as text. A tail counts entries: every part of a line is one. Rejects with ENOENT if there is
 * no log, for which `follow` waits while the container runs. Rejects with a `LogError` for a log of an unknown format.
 */
export async function readLog(
  path: string,
  options: LogOptions,
  { out, signal }: LogSink,
  deps: LogReadDeps,
): Promise<void> {
  const filter = lineFilter(options, deps.clock);
  let leftBytes = options.limitBytes ?? Number.POSITIVE_INFINITY;
  // Entries that the container writes after the tail was found are shown only when the log is followed.
  let leftEntries = options.follow ? Number.POSITIVE_INFINITY : (options.tailLines ?? Number.POSITIVE_INFINITY);
  const emit = async (line: Buffer): Promise<boolean> => {
    if (leftEntries === 0) return false;
    const text = formatLine(line, filter);
    if (text === undefined) return true;
    leftEntries--;
    const part = text.subarray(0, leftBytes);
    leftBytes -= part.length;
    if (part.length > 0) await writeOut(out, part, signal);
    return leftBytes > 0 && !signal.aborted;
  };
  const reader = options.follow ? await openWhenThere(path, deps, signal) : await FollowedFile.open(path);
  if (reader === undefined) return;
  try {
    if (options.tailLines !== undefined) await reader.seekTail(options.tailLines, signal);
    if (!(await drain(reader, emit, signal))) return;
    if (options.follow) {
      await followLog(reader, emit, deps, signal);
      return;
    }
    const incompleteLine = reader.incompleteLine();
    if (incompleteLine.length > 0) await emit(incompleteLine);
  } finally {
    await reader.close();
  }
}

/**
 * Opens the log, and waits for it while the container runs. Rejects with ENOENT if the container has terminated without a log.
 * Resolves to `undefined` if the signal aborts first.
 */
async function openWhenThere(path: string, deps: LogReadDeps, signal: AbortSignal): Promise<FollowedFile | undefined> {
  while (!signal.aborted) {
    try {
      return await FollowedFile.open(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
    if (!(await deps.isRunning())) return FollowedFile.open(path);
    await pause(deps.clock, APPEARANCE_MS, signal);
  }
  return undefined;
}

/**
 * Emits the complete lines up to the present end of the file. Returns false if no more output is needed or the signal has
 * aborted, which is checked for each chunk, because a log may have terabytes without a line.
 */
async function drain(
  reader: FollowedFile,
  emit: (line: Buffer) => Promise<boolean>,
  signal: AbortSignal,
): Promise<boolean> {
  while (!signal.aborted) {
    const lines = await reader.lines();
    if (lines === undefined) return true;
    for (const line of lines) if (!(await emit(line))) return false;
  }
  return false;
}

/**
 * Writes the log until the container has terminated and all its complete lines are written, or until no more output is needed
 * or the signal aborts.
 */
async function followLog(
  reader: FollowedFile,
  emit: (line: Buffer) => Promise<boolean>,
  deps: LogReadDeps,
  signal: AbortSignal,
): Promise<void> {
  const watcher = watchFile(reader.path);
  try {
    while (!signal.aborted) {
      // This is read before the log, so that everything written until then is read.
      const running = await deps.isRunning();
      if (!(await drain(reader, emit, signal))) return;
      const rotation = await reader.rotated(deps.clock.monotonic());
      if (rotation === 'done') continue;
      if (rotation === 'none' && !running) return;
      await watcher.changed(deps.clock, signal, rotation === 'settling' ? SETTLE_MS : POLL_MS);
    }
  } finally {
    watcher.close();
  }
}

function watchFile(path: string): {
  changed(clock: Clock, signal: AbortSignal, withinMs: number): Promise<void>;
  close(): void;
} {
  let wake: () => void = () => undefined;
  let dirty = false;
  let watcher: ReturnType<typeof watch> | undefined;
  try {
    watcher = watch(dirname(path), () => {
      dirty = true;
      wake();
    });
    // A watch that fails leaves the polling.
    watcher.on('error', () => undefined);
  } catch {
    // Without a watch, polling finds new lines.
  }
  return {
    async changed(clock, signal, withinMs) {
      if (!dirty) {
        const limit = new AbortController();
        await Promise.race([
          new Promise<void>((resolve) => (wake = resolve)),
          pause(clock, withinMs, AbortSignal.any([signal, limit.signal])),
        ]);
        limit.abort();
      }
      dirty = false;
    },
    close: () => watcher?.close(),
  };
}

class FollowedFile {
  readonly path: string;
  #file: FileHandle;
  /** The file that has taken the name, and the time since which the old one has had no new data. */
  #next: { readonly file: FileHandle; sinceMs: number } | undefined;
  #position = 0;
  #incompleteLine: Buffer = Buffer.alloc(0);
  /** Whether the reader is inside a line that is longer than any runtime writes. The end of such a line is omitted. */
  #skips = false;

  private constructor(path: string, file: FileHandle) {
    this.path = path;
    this.#file = file;
  }

  static async open(path: string): Promise<FollowedFile> {
    return new FollowedFile(path, await openLog(path));
  }

  /**
   * Returns the complete lines of the next chunk, with their newline; `undefined` at the present end. The beginning of a line
   * that is too long counts as a line, and the rest of it is omitted.
   */
  async lines(): Promise<Buffer[] | undefined> {
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
    const { bytesRead } = await this.#file.read(chunk, 0, CHUNK_BYTES, this.#position);
    if (bytesRead === 0) return undefined;
    this.#position += bytesRead;
    const data = Buffer.concat([this.#incompleteLine, chunk.subarray(0, bytesRead)]);
    const lines: Buffer[] = [];
    let from = 0;
    for (let newline = data.indexOf(NEWLINE, from); newline !== -1; newline = data.indexOf(NEWLINE, from)) {
      if (!this.#skips) lines.push(data.subarray(from, newline + 1));
      this.#skips = false;
      from = newline + 1;
    }
    this.#incompleteLine = this.#skips ? Buffer.alloc(0) : Buffer.from(data.subarray(from));
    if (this.#incompleteLine.length > MAX_LINE_BYTES) {
      lines.push(Buffer.concat([this.#incompleteLine, Buffer.from('\n')]));
      this.#incompleteLine = Buffer.alloc(0);
      this.#skips = true;
    }
    return lines;
  }

  /** Returns the beginning of a line that has no end (yet). */
  incompleteLine(): Buffer {
    return this.#incompleteLine;
  }

  /** Goes to where the last `count` entries begin. An entry without a line end is not counted. Reads backwards, by chunks. */
  async seekTail(count: number, signal: AbortSignal): Promise<void> {
    let left = count;
    const { size } = await this.#file.stat();
    for (let end = size; end > 0 && !signal.aborted; end = Math.max(0, end - CHUNK_BYTES)) {
      const start = Math.max(0, end - CHUNK_BYTES);
      const chunk = Buffer.alloc(end - start);
      await this.#file.read(chunk, 0, chunk.length, start);
      for (let at = chunk.lastIndexOf(NEWLINE); at !== -1; at = at === 0 ? -1 : chunk.lastIndexOf(NEWLINE, at - 1)) {
        if (left === 0) {
          this.#position = start + at + 1;
          return;
        }
        left--;
      }
    }
    this.#position = 0;
  }

  /**
   * Continues with another file that has taken the name, once the old one has had no new data for a while, because writers
   * switch a moment after the new file exists. Returns `none` without another file, `settling` while it waits, and `done` if
   * there may be more to read now.
   */
  async rotated(nowMs: number): Promise<'none' | 'settling' | 'done'> {
    if (this.#next === undefined) {
      const next = await this.#namesake();
      if (next === undefined) return 'none';
      this.#next = { file: next, sinceMs: nowMs };
      return 'settling';
    }
    if ((await this.#file.stat()).size > this.#position) {
      this.#next.sinceMs = nowMs;
      return 'done';
    }
    if (nowMs - this.#next.sinceMs < SETTLE_MS) return 'settling';
    await this.#file.close();
    this.#file = this.#next.file;
    this.#next = undefined;
    this.#position = 0;
    return 'done';
  }

  /** Returns the file of that name, unless it is the one that is being read. */
  async #namesake(): Promise<FileHandle | undefined> {
    let next: FileHandle;
    try {
      next = await openLog(this.path);
    } catch {
      // The file was rotated, and its successor does not exist yet.
      return undefined;
    }
    const [now, then] = [await next.stat(), await this.#file.stat()];
    if (now.ino !== then.ino || now.dev !== then.dev) return next;
    await next.close();
    return undefined;
  }

  async close(): Promise<void> {
    await this.#next?.file.close();
    await this.#file.close();
  }
}

function lineFilter(options: LogOptions, clock: Clock): LineFilter {
  let sinceMs = 0;
  if (options.sinceTime !== undefined) sinceMs = Date.parse(options.sinceTime);
  else if (options.sinceSeconds !== undefined) sinceMs = Math.max(0, clock.now() - options.sinceSeconds * 1000);
  const stream = options.stream === undefined || options.stream === 'All' ? undefined : options.stream.toLowerCase();
  return {
    sinceText: sinceMs === 0 ? '' : sinceText(sinceMs, options.sinceTime),
    timestamps: options.timestamps,
    stream,
    parser: undefined,
    atLineStart: true,
  };
}

/** Formats a time in UTC with nine digits of the second, which `toISOString` has three of. */
function sinceText(sinceMs: number, sinceTime: string | undefined): string {
  const text = new Date(sinceMs).toISOString();
  const fraction = /\.(\d+)/.exec(sinceTime ?? text)?.[1] ?? '';
  return `${text.slice(0, 19)}.${fraction.slice(0, 9).padEnd(9, '0')}`;
}

/**
 * Returns the text of an entry for the client: empty for an entry before the start time or of another stream, `undefined` for
 * one in another format than the first. Throws a `LogError` if the first entry has an unknown format, or for an unknown stream.
 */
function formatLine(line: Buffer, filter: LineFilter): Buffer | undefined {
  filter.parser ??= parserOf(line);
  const entry = filter.parser(line);
  if (entry === undefined) return undefined;
  const { time, stream, text } = entry;
  const isFirst = filter.atLineStart;
  filter.atLineStart = text.length === 0 || text.at(-1) === NEWLINE;
  if (filter.sinceText !== '' && utcOf(entry) < filter.sinceText) return Buffer.alloc(0);
  if (stream !== 'stdout' && stream !== 'stderr') throw new LogError(`unexpected stream type ${quote(stream)}`);
  if (filter.stream !== undefined && stream !== filter.stream) return Buffer.alloc(0);
  return filter.timestamps && isFirst ? Buffer.concat([Buffer.from(`${time} `, 'latin1'), text]) : text;
}
