/**
 * Reads a container's CRI log for `kubectl logs`: tail, since, limit, timestamps and one stream. Follows the log over rotations
 * until the container has terminated. Memory is bounded by one chunk and one line, and a slow reader delays the reading.
 */
import type { FileHandle } from 'node:fs/promises';
import { watch } from 'node:fs';
import { dirname } from 'node:path';
import { writeOut } from '../../../api/machinery/back-pressure.ts';
import { type Clock, pause } from '../../../api/machinery/clock.ts';
import { openLog } from './log-files.ts';

const CHUNK_BYTES = 64 * 1024;
/** The longest entry. Runtimes split lines into entries of 16 KiB, so a longer one is invalid. */
const LONGEST_LINE_BYTES = 1024 * 1024;
/** Formats a timestamp as `2026-01-02T03:04:05.000000000`. Runtimes omit trailing zeros, and the output has all digits. */
const FRACTION_DIGITS = 9;
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
  /** RFC 3339. */
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
  readonly sinceText: string;
  readonly timestamps: boolean;
  readonly stream: string | undefined;
  /** Whether the last output ended its line. Only the first part of a line has a timestamp. */
  atLineStart: boolean;
}

/**
 * Writes the log at the path, a file in the format of CRI, as text. Resolves when the whole log is written or the signal
 * aborts. With `follow` it waits for the log of a container that has just started; otherwise it rejects with ENOENT.
 */
export async function readLog(
  path: string,
  options: LogOptions,
  { out, signal }: LogSink,
  deps: LogReadDeps,
): Promise<void> {
  const filter = lineFilter(options, deps.clock);
  let leftBytes = options.limitBytes ?? Number.POSITIVE_INFINITY;
  // Lines that the container writes after the tail was found are shown only when the log is followed.
  let leftLines = options.follow ? Number.POSITIVE_INFINITY : (options.tailLines ?? Number.POSITIVE_INFINITY);
  const emit = async (line: Buffer): Promise<boolean> => {
    if (leftLines === 0) return false;
    if (lineTag(line) !== 'P') leftLines--;
    const text = formatLine(line, filter);
    if (text === undefined) return true;
    const kept = text.subarray(0, leftBytes);
    leftBytes -= kept.length;
    if (kept.length > 0) await writeOut(out, kept, signal);
    return leftBytes > 0 && !signal.aborted;
  };
  const reader = options.follow ? await openWhenThere(path, deps, signal) : await FollowedFile.open(path);
  if (reader === undefined) return;
  try {
    if (options.tailLines !== undefined) await reader.seekTail(options.tailLines);
    if (!(await drain(reader, emit))) return;
    if (options.follow && !(await followLog(reader, emit, deps, signal))) return;
    const torn = reader.rest();
    if (torn.length > 0) await emit(torn);
  } finally {
    await reader.close();
  }
}

/** Resolves to `undefined` if the signal aborts first. */
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

/** Returns false if no more output is needed. */
async function drain(reader: FollowedFile, emit: (line: Buffer) => Promise<boolean>): Promise<boolean> {
  for (;;) {
    const lines = await reader.lines();
    if (lines === undefined) return true;
    for (const line of lines) if (!(await emit(line))) return false;
  }
}

/** Resolves to true when the container has terminated and its whole log is written. */
async function followLog(
  reader: FollowedFile,
  emit: (line: Buffer) => Promise<boolean>,
  deps: LogReadDeps,
  signal: AbortSignal,
): Promise<boolean> {
  const watcher = watchFile(reader.path);
  try {
    while (!signal.aborted) {
      // This is read before the log, so that everything written until then is read.
      const running = await deps.isRunning();
      if (!(await drain(reader, emit))) return false;
      const rotation = await reader.rotated(deps.clock.monotonic());
      if (rotation === 'done') continue;
      if (rotation === 'none' && !running) return true;
      await watcher.changed(deps.clock, signal, rotation === 'settling' ? SETTLE_MS : POLL_MS);
    }
    return false;
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
  #rest: Buffer = Buffer.alloc(0);
  /** Whether the reader is inside a line that is longer than any runtime writes. The end of such a line is omitted. */
  #skips = false;

  private constructor(path: string, file: FileHandle) {
    this.path = path;
    this.#file = file;
  }

  static async open(path: string): Promise<FollowedFile> {
    return new FollowedFile(path, await openLog(path));
  }

  /** Returns the complete lines that follow, with their newline, and `undefined` at the present end. */
  async lines(): Promise<Buffer[] | undefined> {
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
    const { bytesRead } = await this.#file.read(chunk, 0, CHUNK_BYTES, this.#position);
    if (bytesRead === 0) return undefined;
    this.#position += bytesRead;
    const data = Buffer.concat([this.#rest, chunk.subarray(0, bytesRead)]);
    const lines: Buffer[] = [];
    let from = 0;
    for (let newline = data.indexOf(10, from); newline !== -1; newline = data.indexOf(10, from)) {
      if (!this.#skips) lines.push(data.subarray(from, newline + 1));
      this.#skips = false;
      from = newline + 1;
    }
    this.#rest = this.#skips ? Buffer.alloc(0) : Buffer.from(data.subarray(from));
    if (this.#rest.length > LONGEST_LINE_BYTES) {
      lines.push(Buffer.concat([this.#rest, Buffer.from('\n')]));
      this.#rest = Buffer.alloc(0);
      this.#skips = true;
    }
    return lines;
  }

  /** The beginning of a line that has no end (yet). */
  rest(): Buffer {
    return this.#rest;
  }

  /** Goes to where the last `count` lines begin; a line in parts counts once. Reads back, each byte once. */
  async seekTail(count: number): Promise<void> {
    const { size } = await this.#file.stat();
    let lines = 0;
    // An entry begins after the newline that ends the one before it.
    let entryEnd = size;
    /** The part of an entry whose beginning is in an earlier chunk, which is read next. */
    let carry: Buffer = Buffer.alloc(0);
    for (let end = size; end > 0; end = Math.max(0, end - CHUNK_BYTES)) {
      const start = Math.max(0, end - CHUNK_BYTES);
      const chunk = Buffer.alloc(end - start);
      await this.#file.read(chunk, 0, chunk.length, start);
      const data = Buffer.concat([chunk, carry]);
      let upTo = data.length;
      for (;;) {
        // The newline at the end of an entry is its own.
        const newline = upTo > 1 ? data.lastIndexOf(10, upTo - 2) : -1;
        if (newline === -1 && start > 0) break;
        const begin = newline + 1;
        // The text after the last newline belongs to the last line, which may still be written.
        const isWhole = upTo > begin && data[upTo - 1] === 10;
        if ((isWhole && lineTag(data.subarray(begin, upTo)) !== 'P') || entryEnd === size) lines++;
        if (lines > count) {
          this.#position = entryEnd;
          return;
        }
        entryEnd = start + begin;
        upTo = begin;
        if (begin === 0) break;
      }
      // Only the beginning of a line counts that is longer than any runtime writes.
      carry = Buffer.from(data.subarray(0, Math.min(upTo, LONGEST_LINE_BYTES)));
    }
    this.#position = 0;
  }

  /**
   * Continues with another file that has taken the name, once the old one has had no new data for a while, because writers
   * switch a moment after the new file exists.
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
    atLineStart: true,
  };
}

/** Formats a time in UTC, with the given fraction. */
function sinceText(sinceMs: number, sinceTime: string | undefined): string {
  const fraction = /\.(\d+)/.exec(sinceTime ?? '')?.[1];
  const text = new Date(sinceMs).toISOString();
  return wholeFraction(fraction === undefined ? text : `${text.slice(0, 19)}.${fraction}Z`).slice(0, -1);
}

/** Returns the tag of a CRI line: `P` (partial) or `F` (full). */
function lineTag(line: Buffer): string {
  const first = line.indexOf(32);
  const second = line.indexOf(32, first + 1);
  return line.toString('latin1', second + 1, second + 2);
}

/** Returns the CRI line as the client sees it, or `undefined` if it is omitted. A line in another format is shown unchanged. */
function formatLine(line: Buffer, filter: LineFilter): Buffer | undefined {
  const first = line.indexOf(32);
  const second = first === -1 ? -1 : line.indexOf(32, first + 1);
  const third = second === -1 ? -1 : line.indexOf(32, second + 1);
  if (third === -1) return line;
  const time = wholeFraction(line.toString('latin1', 0, first));
  const utc = filter.sinceText === '' ? '' : utcText(time);
  if (utc === undefined) return line;
  if (utc < filter.sinceText) return undefined;
  if (filter.stream !== undefined && line.toString('latin1', first + 1, second) !== filter.stream) return undefined;
  const partial = line[second + 1] === 0x50;
  const isEnded = line.at(-1) === 10;
  const text = line.subarray(third + 1, partial && isEnded ? line.length - 1 : line.length);
  const isFirst = filter.atLineStart;
  filter.atLineStart = text.length === 0 || text.at(-1) === 10;
  return filter.timestamps && isFirst ? Buffer.concat([Buffer.from(`${time} `, 'latin1'), text]) : text;
}

/** Returns an RFC 3339 time with all nine digits after the second, and the zone. */
function wholeFraction(time: string): string {
  const [, seconds, fraction = '', zone] = /^([^.Z+]{19})(?:\.(\d+))?(.+)$/.exec(time) ?? [];
  if (seconds === undefined || zone === undefined) return time;
  return `${seconds}.${fraction.slice(0, FRACTION_DIGITS).padEnd(FRACTION_DIGITS, '0')}${zone}`;
}

/**
 * Converts a result of `wholeFraction` to UTC without the zone, because runtimes also write local time with an offset. Returns
 * `undefined` if the text is not a time.
 */
function utcText(time: string): string | undefined {
  if (Number.isNaN(Date.parse(time))) return undefined;
  if (time.endsWith('Z')) return time.slice(0, -1);
  const fraction = time.slice(19, 20 + FRACTION_DIGITS);
  return `${new Date(time).toISOString().slice(0, 19)}${fraction}`;
}
