/**
 * Reads a container's CRI log for `kubectl logs`: tail, since, limit, timestamps, one stream, and following it over
 * rotations until the container has ended. Memory is bounded by one chunk and one line; slow readers hold the reading.
 */
import { open, type FileHandle } from 'node:fs/promises';
import { watch } from 'node:fs';
import { dirname } from 'node:path';
import type { Clock } from '../../api/machinery/clock.ts';
import type { LogOptions } from '../core-types.ts';

const CHUNK_BYTES = 64 * 1024;
/** Runtimes cut lines into entries of 16 KiB; what is longer than this is no log of theirs. */
const LONGEST_LINE_BYTES = 1024 * 1024;
/** So long a log that was moved away may still be written. */
const SETTLE_MS = 300;
/** Where file events do not come (other hosts' file systems). */
const POLL_MS = 1_000;

export interface LogReadDeps {
  readonly clock: Clock;
  /** Whether the container still writes. */
  readonly isRunning: () => Promise<boolean>;
}

interface LineFilter {
  readonly sinceText: string;
  readonly timestamps: boolean;
  readonly stream: string | undefined;
}

/** Resolves when all was written, or the signal aborted. */
export async function readLog(
  path: string,
  options: LogOptions,
  out: NodeJS.WritableStream,
  deps: LogReadDeps,
  signal: AbortSignal,
): Promise<void> {
  const filter = lineFilter(options, deps.clock);
  let leftBytes = options.limitBytes ?? Number.POSITIVE_INFINITY;
  const emit = async (line: Buffer): Promise<boolean> => {
    const text = formatLine(line, filter);
    if (text === undefined) return true;
    const kept = text.subarray(0, leftBytes);
    leftBytes -= kept.length;
    if (kept.length > 0) await write(out, kept, signal);
    return leftBytes > 0 && !signal.aborted;
  };
  const reader = await FollowedFile.open(path);
  try {
    if (options.tailLines !== undefined) await reader.seekTail(options.tailLines);
    if (!(await drain(reader, emit)) || !options.follow) return;
    await followLog(reader, emit, deps, signal);
  } finally {
    await reader.close();
  }
}

async function drain(reader: FollowedFile, emit: (line: Buffer) => Promise<boolean>): Promise<boolean> {
  for (;;) {
    const lines = await reader.lines();
    if (lines === undefined) return true;
    for (const line of lines) if (!(await emit(line))) return false;
  }
}

async function followLog(
  reader: FollowedFile,
  emit: (line: Buffer) => Promise<boolean>,
  deps: LogReadDeps,
  signal: AbortSignal,
): Promise<void> {
  const watcher = watchFile(reader.path);
  try {
    while (!signal.aborted) {
      // Asked before the read: what is written until then is read.
      const running = await deps.isRunning();
      if (!(await drain(reader, emit))) return;
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
    watcher.on('error', () => undefined);
  } catch {
    // Polling is enough.
  }
  return {
    async changed(clock, signal, withinMs) {
      if (!dirty) {
        const limit = new AbortController();
        await Promise.race([
          new Promise<void>((resolve) => (wake = resolve)),
          clock.sleep(withinMs, AbortSignal.any([signal, limit.signal])).catch(() => undefined),
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
  /** What has taken its name, and since when the old one has been silent. */
  #next: { readonly file: FileHandle; sinceMs: number } | undefined;
  #position = 0;
  #rest: Buffer = Buffer.alloc(0);
  /** In the middle of a line that is longer than any runtime writes: its end is left out. */
  #skips = false;

  private constructor(path: string, file: FileHandle) {
    this.path = path;
    this.#file = file;
  }

  static async open(path: string): Promise<FollowedFile> {
    return new FollowedFile(path, await open(path, 'r'));
  }

  /** Complete lines that follow, with their newline; `undefined` at the present end. */
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

  /** Goes to where the last `count` lines begin; a line in parts counts once. */
  async seekTail(count: number): Promise<void> {
    const { size } = await this.#file.stat();
    if (count <= 0) {
      this.#position = size;
      return;
    }
    let newlines = 0;
    let end = size;
    while (end > 0) {
      const start = Math.max(0, end - CHUNK_BYTES);
      const chunk = Buffer.alloc(end - start);
      await this.#file.read(chunk, 0, chunk.length, start);
      for (let index = chunk.length - 1; index >= 0; index--) {
        if (chunk[index] !== 10) continue;
        const at = start + index + 1;
        if (at === size) continue;
        if (await this.#isContinued(at)) continue;
        newlines++;
        if (newlines === count) {
          this.#position = at;
          return;
        }
      }
      end = start;
    }
    this.#position = 0;
  }

  /** The line before this place is only a part, which the line here goes on. */
  async #isContinued(at: number): Promise<boolean> {
    const start = Math.max(0, at - 1 - (CHUNK_BYTES >> 1));
    const chunk = Buffer.alloc(at - 1 - start);
    await this.#file.read(chunk, 0, chunk.length, start);
    const line = chunk.subarray(chunk.lastIndexOf(10) + 1);
    return lineTag(line) === 'P';
  }

  /**
   * Another file has taken the name: goes on with that, but not before the old one has been silent for a while: who writes
   * changes over a moment after the new one is there.
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

  /** The file of that name, where it is not the one that is read. */
  async #namesake(): Promise<FileHandle | undefined> {
    let next: FileHandle;
    try {
      next = await open(this.path, 'r');
    } catch {
      // Moved away, and the new one is not there yet.
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
  else if (options.sinceSeconds !== undefined) sinceMs = clock.now() - options.sinceSeconds * 1000;
  const stream = options.stream === undefined || options.stream === 'All' ? undefined : options.stream.toLowerCase();
  return {
    sinceText: sinceMs === 0 ? '' : new Date(sinceMs).toISOString().slice(0, 23),
    timestamps: options.timestamps,
    stream,
  };
}

/** `P` or `F` of a CRI line. */
function lineTag(line: Buffer): string {
  const first = line.indexOf(32);
  const second = line.indexOf(32, first + 1);
  return line.toString('latin1', second + 1, second + 2);
}

/** What the reader sees of a CRI line; `undefined` where it is left out. A line that is not one is shown as it is. */
function formatLine(line: Buffer, filter: LineFilter): Buffer | undefined {
  const first = line.indexOf(32);
  const second = first === -1 ? -1 : line.indexOf(32, first + 1);
  const third = second === -1 ? -1 : line.indexOf(32, second + 1);
  if (third === -1) return line;
  const time = line.toString('latin1', 0, first);
  if (filter.sinceText !== '' && utcText(time) < filter.sinceText) return undefined;
  if (filter.stream !== undefined && line.toString('latin1', first + 1, second) !== filter.stream) return undefined;
  const partial = line[second + 1] === 0x50;
  const text = partial ? line.subarray(third + 1, line.length - 1) : line.subarray(third + 1);
  return filter.timestamps ? Buffer.concat([Buffer.from(`${time} `, 'latin1'), text]) : text;
}

/** Runtimes write local time with an offset, too. */
function utcText(time: string): string {
  return time.endsWith('Z') ? time.slice(0, 23) : new Date(time).toISOString().slice(0, 23);
}

async function write(out: NodeJS.WritableStream, data: Buffer, signal: AbortSignal): Promise<void> {
  if (out.write(data)) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      out.removeListener('drain', done);
      out.removeListener('close', done);
      out.removeListener('error', done);
      signal.removeEventListener('abort', done);
      resolve();
    };
    out.once('drain', done);
    out.once('close', done);
    out.once('error', done);
    signal.addEventListener('abort', done, { once: true });
  });
}
