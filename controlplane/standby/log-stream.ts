/**
 * Sends the log of this control plane to a standby: a snapshot if the standby cannot continue its copy, and then every record
 * as soon as it is durable. The records are read from the database in pages, so a slow standby takes no memory here.
 */
import type { RecordMark, StoredLog } from '../storage/stored-log.ts';
import { randomBytes } from 'node:crypto';
import { mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, pause } from '../../api/machinery/clock.ts';
import type { Storage } from '../storage/storage.ts';
import type { Frame } from './frames.ts';

/** The log that is sent. Snapshots are made below `backup` of the data directory. */
interface LogStreamOptions {
  readonly storage: Storage;
  readonly log: StoredLog;
  readonly dataDirectory: string;
  readonly clock: Clock;
}

/** How far the copy of a standby goes, and its newest record. */
export interface CopyPosition {
  readonly lastRevision: number;
  readonly newest: RecordMark | undefined;
}

/** The time between two signs of life, in which nothing else is sent. */
const SIGN_EVERY_MS = 1000;
const PART_BYTES = 256 * 1024;
/** The maximum time for which compacted records are held for a standby that receives a snapshot. */
const MAX_HOLD_MS = 15 * 60_000;

/** The receiver of the frames of one stream. */
interface FrameSink {
  /** Resolves when more can be written. Throws once nobody reads. */
  write(frame: Frame): Promise<void>;
}

/**
 * Sends frames until the signal aborts, or until records that the standby lacks are compacted: then `compacted` is the last
 * frame. Throws the error of the sink when nobody reads any more, and errors of the storage.
 */
export async function streamLog(
  options: LogStreamOptions,
  from: CopyPosition,
  sink: FrameSink,
  signal: AbortSignal,
): Promise<void> {
  const { storage, log, clock } = options;
  let release = (): void => undefined;
  const changes = new Changes(storage, clock);
  try {
    let after = from.lastRevision;
    if (!(await canContinue(options, from))) {
      release = holdRemovals(log, clock);
      // The snapshot has everything up to this revision, and may have more, which the standby skips.
      after = storage.revision();
      await sendSnapshot(options, sink, signal);
    }
    while (!signal.aborted) {
      const newestRevision = storage.revision();
      const { records, compactedRevision } = await log.read(after);
      if (compactedRevision > after) {
        await sink.write({ type: 'compacted' });
        return;
      }
      const last = records.revisions.at(-1);
      if (last !== undefined) {
        await sink.write({ type: 'records', records, newestRevision: Math.max(newestRevision, last) });
        after = last;
        continue;
      }
      release();
      after = Math.max(after, newestRevision);
      const marks = { compactedRevision, lastRevision: after, lastCompaction: storage.lastCompaction() };
      await sink.write({ type: 'complete', marks, sentAtMs: clock.monotonic() });
      await changes.next(after, SIGN_EVERY_MS, signal);
    }
  } finally {
    release();
    changes.close();
  }
}

/**
 * Whether the standby can continue its copy: all records after it are in the log, and the newest record of the copy is one of
 * this log.
 */
async function canContinue({ storage, log }: LogStreamOptions, from: CopyPosition): Promise<boolean> {
  if (from.newest === undefined || from.lastRevision > storage.revision()) return false;
  const { compactedRevision } = await log.read(from.lastRevision);
  return compactedRevision <= from.lastRevision && (await log.has(from.newest));
}

function holdRemovals(log: StoredLog, clock: Clock): () => void {
  const release = log.holdRemovals();
  const timer = clock.after(MAX_HOLD_MS, release);
  return () => {
    timer.cancel();
    release();
  };
}

/** Sends a copy of the database. Its file is unlinked before it is sent, so that nothing of it stays on the disk. */
async function sendSnapshot(
  { storage, dataDirectory, clock }: LogStreamOptions,
  sink: FrameSink,
  signal: AbortSignal,
): Promise<void> {
  const directory = join(dataDirectory, 'backup');
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, `${randomBytes(8).toString('hex')}.db`);
  try {
    await withSigns(storage.copyTo(path), sink, clock);
    await using file = await open(path, 'r');
    await rm(path);
    const { size } = await file.stat();
    await sink.write({ type: 'snapshot', sizeBytes: size });
    for (let at = 0; at < size && !signal.aborted;) {
      const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(PART_BYTES), 0, PART_BYTES, at);
      if (bytesRead === 0) throw new Error(`${path} is shorter than it was`);
      await sink.write({ type: 'part', bytes: buffer.subarray(0, bytesRead) });
      at += bytesRead;
    }
  } finally {
    await rm(path, { force: true });
  }
}

/** Sends signs of life during the work, because a large file takes longer than a standby waits for the next frame. */
async function withSigns(work: Promise<void>, sink: FrameSink, clock: Clock): Promise<void> {
  const done = new AbortController();
  const stop = (): void => done.abort();
  work.then(stop, stop);
  try {
    const next = (): Promise<void> => pause(clock, SIGN_EVERY_MS, done.signal);
    for (await next(); !done.signal.aborted; await next()) await sink.write({ type: 'preparing' });
  } finally {
    await work;
  }
}

/** Waits for writes. */
class Changes {
  readonly #storage: Storage;
  readonly #clock: Clock;
  readonly #watch: { close(): void };
  #wake: () => void = () => undefined;

  constructor(storage: Storage, clock: Clock) {
    this.#storage = storage;
    this.#clock = clock;
    const wake = (): void => this.#wake();
    const observer = { onEvents: wake, onEnd: wake, onRevision: wake };
    this.#watch = storage.watch({ prefix: '/', afterRevision: storage.revision() }, observer);
  }

  /** Resolves when there is a newer revision, after `withinMs`, or when the signal aborts. */
  async next(revision: number, withinMs: number, signal: AbortSignal): Promise<void> {
    if (this.#storage.revision() > revision || signal.aborted) return;
    const woken = Promise.withResolvers<void>();
    this.#wake = woken.resolve;
    const timer = this.#clock.after(withinMs, woken.resolve);
    signal.addEventListener('abort', this.#wake);
    await woken.promise;
    signal.removeEventListener('abort', this.#wake);
    timer.cancel();
  }

  close(): void {
    this.#watch.close();
  }
}
