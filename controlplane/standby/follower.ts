/**
 * Follows the log of the first control plane and keeps the copy of it. A break of the connection is followed by another
 * connection, which continues the copy, or begins it again by a snapshot.
 */
import type { Logger } from '../../api/component/logger.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import type { Clock, Timer } from '../../api/machinery/clock.ts';
import type { HttpClient } from '../../api/client/http-client.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { LogCopy } from '../storage/sqlite/log-copy.ts';
import { isStorageError } from '../storage/storage.ts';
import { type RecordColumns, storedValues } from '../storage/stored-log.ts';
import { isSealed } from '../storage/value-transformer.ts';
import { FrameDelay } from './frame-delay.ts';
import { type Frame, FrameError, framesOf } from './frames.ts';
import { LOG_PATH } from './peer-paths.ts';
import { CopyWriter, type WrittenGroup } from './copy-writer.ts';
import { SnapshotFile } from './snapshot-file.ts';

/** Where the copy is, what it is copied from, and who learns of its state. Times are in wall-clock milliseconds. */
interface FollowerOptions {
  /** The directory of the database. */
  readonly directory: string;
  /** The URL of this standby, by which the first asks it later whether it was promoted. */
  readonly url: string;
  readonly client: HttpClient;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The last time at which the copy was complete, as an earlier process knew it. 0 if it never was. */
  readonly completeAtMs: number;
  /** Called whenever the copy is complete. */
  readonly onComplete: (atMs: number) => void;
  /** Called when the thread of the copy is lost or the outcome of a write is unknown: the process must exit. */
  readonly onLost: (error: Error) => void;
}

/** The state of the copy and of its connection. Immutable: each change leads to another object. */
export interface CopyState {
  readonly isConnected: boolean;
  /** The last revision of the copy. */
  readonly revision: number;
  /** The newest revision of the first that is known. */
  readonly newestRevision: number;
  /** The last wall-clock time, in milliseconds, at which the copy had everything that the first had. 0 if it never did. */
  readonly completeAtMs: number;
  /** The number of snapshots that this process has installed. */
  readonly snapshots: number;
  /** Whether this process has copied an encrypted value. Those of snapshots and of earlier processes do not count. */
  readonly hasSealedValues: boolean;
  /** Why the last connection failed. `undefined` if none has failed since the last one was made. */
  readonly problem: string | undefined;
}

/** The state before anything is copied. */
export const NO_COPY: CopyState = {
  isConnected: false,
  revision: 0,
  newestRevision: 0,
  completeAtMs: 0,
  snapshots: 0,
  hasSealedValues: false,
  problem: undefined,
};

/** The time of silence after which the connection counts as broken. */
const SILENT_MS = 15_000;

/** Follows the first control plane until `stop`, `release` or `close` is called. */
export class Follower {
  readonly #options: FollowerOptions;
  readonly #stop = new AbortController();
  #copy: LogCopy | undefined;
  #writer: CopyWriter | undefined;
  #snapshot: SnapshotFile | undefined;
  #state: CopyState;
  #running: Promise<void> = Promise.resolve();
  #delay: FrameDelay;
  #onProgress: () => void = () => undefined;

  private constructor(options: FollowerOptions, copy: LogCopy | undefined) {
    this.#options = options;
    this.#delay = new FrameDelay(options.clock);
    this.#state = { ...NO_COPY, completeAtMs: copy === undefined ? 0 : options.completeAtMs };
    this.#useCopy(copy);
  }

  /** Begins to follow with what `openCopy` has opened, which is closed with the follower. */
  static start(options: FollowerOptions, copy: LogCopy | undefined): Follower {
    const follower = new Follower(options, copy);
    follower.#running = follower.#run();
    return follower;
  }

  get state(): CopyState {
    return this.#state;
  }

  /** Resolves to whether the copy has everything up to the revision within this time. */
  async reaches(revision: number, withinMs: number): Promise<boolean> {
    const { clock } = this.#options;
    const untilMs = clock.monotonic() + withinMs;
    while (this.#state.revision < revision) {
      const leftMs = untilMs - clock.monotonic();
      if (leftMs <= 0) return false;
      const progress = Promise.withResolvers<void>();
      this.#onProgress = progress.resolve;
      const timer = clock.after(leftMs, progress.resolve);
      await progress.promise;
      timer.cancel();
    }
    return true;
  }

  get isStopped(): boolean {
    return this.#stop.signal.aborted;
  }

  /** Stops following. The copy remains open. */
  async stop(): Promise<void> {
    this.#stop.abort(new Error('the standby stops'));
    await this.#running;
  }

  /**
   * Stops following and returns the copy, which the caller closes. Returns `undefined` if there is none that can be used.
   */
  async release(): Promise<LogCopy | undefined> {
    await this.stop();
    const copy = this.#copy ?? (this.#state.completeAtMs > 0 ? await openCopy(this.#options) : undefined);
    this.#copy = undefined;
    return copy;
  }

  async close(): Promise<void> {
    await (await this.release())?.close();
  }

  async #run(): Promise<void> {
    const { clock, logger } = this.#options;
    const loop = new WakeableLoop({
      clock,
      backoff: new Backoff({ firstMs: 500, longestMs: 10_000 }),
      onError: (error, failures) => {
        // The outcome of a write is unknown: only another process can rely on the file.
        if (isStorageError(error, 'unknown-outcome')) this.#options.onLost(error);
        if (failures === 1) logger.warn({ err: error }, 'The first control plane cannot be followed now');
        this.#state = { ...this.#state, problem: errorMessage(error) };
      },
    });
    await loop.run(this.#stop.signal, (signal) => this.#follow(signal));
  }

  /**
   * Follows until the stream breaks, and then rejects. Resolves to 0, for another attempt at once, if the first has compacted
   * records that the copy lacks.
   */
  async #follow(signal: AbortSignal): Promise<number> {
    const { client, logger } = this.#options;
    const silent = new AbortController();
    const both = AbortSignal.any([signal, silent.signal]);
    try {
      const timer = this.#arm(silent);
      const { body } = await client
        .raw({ method: 'GET', path: this.#path(), isWatch: true, signal: both })
        .finally(() => timer.cancel());
      // A writer that failed on the connection before takes no more records.
      this.#useCopy(this.#copy);
      this.#state = { ...this.#state, isConnected: true, problem: undefined };
      this.#delay = new FrameDelay(this.#options.clock);
      logger.info({ revision: this.#state.revision }, 'Following the first control plane');
      for await (const frame of framesOf(this.#withTimeout(body, silent))) {
        if (frame.type === 'compacted') return 0;
        await this.#apply(frame);
      }
      throw new Error('the first control plane ended the stream');
    } finally {
      this.#state = { ...this.#state, isConnected: false };
      await this.#writer?.drain();
      await this.#snapshot?.discard();
      this.#snapshot = undefined;
    }
  }

  #path(): string {
    const copy = this.#copy;
    const url = `${LOG_PATH}?url=${encodeURIComponent(this.#options.url)}`;
    if (copy?.newest === undefined) return url;
    const { revision, checksum } = copy.newest;
    return `${url}&after=${copy.lastRevision}&newest=${revision}&checksum=${checksum}`;
  }

  /** Passes the chunks on, and aborts when none comes for too long. Time in which a chunk is processed does not count. */
  async *#withTimeout(body: AsyncIterable<Buffer>, silent: AbortController): AsyncGenerator<Buffer, void, undefined> {
    let timer = this.#arm(silent);
    try {
      for await (const chunk of body) {
        timer.cancel();
        yield chunk;
        timer = this.#arm(silent);
      }
    } finally {
      timer.cancel();
    }
  }

  #arm(silent: AbortController): Timer {
    return this.#options.clock.after(SILENT_MS, () =>
      silent.abort(new Error(`the first control plane has sent nothing for ${SILENT_MS / 1000} s`)),
    );
  }

  async #apply(frame: Frame): Promise<void> {
    switch (frame.type) {
      case 'snapshot':
        if (this.#snapshot !== undefined) throw new FrameError('a snapshot came before the last one was complete');
        this.#snapshot = await SnapshotFile.create(this.#options.directory, frame.sizeBytes);
        return;
      case 'part':
        if (this.#snapshot === undefined) throw new FrameError('a part belongs to no snapshot');
        await this.#snapshot.add(frame.bytes);
        if (this.#snapshot.isComplete) await this.#install(this.#snapshot);
        return;
      case 'records':
        await this.#writerOf().add(frame);
        return;
      case 'complete':
        await this.#writerOf().add(frame, this.#delay.sentAtMs(frame.sentAtMs));
        return;
      case 'preparing':
      case 'compacted':
        return;
    }
  }

  #writerOf(): CopyWriter {
    if (this.#writer === undefined || this.#snapshot !== undefined)
      throw new FrameError('records came before the snapshot was complete');
    return this.#writer;
  }

  #written({ records, complete }: WrittenGroup): void {
    const newestRevision = Math.max(
      complete?.frame.marks.lastRevision ?? 0,
      ...records.map((frame) => frame.newestRevision),
    );
    const hasSealedValues = this.#state.hasSealedValues || records.some((frame) => hasSealed(frame.records));
    this.#progressed({
      newestRevision,
      hasSealedValues,
      ...(complete === undefined ? {} : { completeAtMs: complete.atMs }),
    });
    if (complete !== undefined) this.#options.onComplete(complete.atMs);
  }

  async #install(snapshot: SnapshotFile): Promise<void> {
    const { directory, logger } = this.#options;
    await this.#copy?.close();
    this.#useCopy(undefined);
    await snapshot.install();
    this.#snapshot = undefined;
    this.#useCopy(await LogCopy.open(directory));
    const { snapshots, revision } = this.#state;
    this.#state = { ...this.#state, snapshots: snapshots + 1, newestRevision: revision };
    logger.info({ revision: this.#state.revision }, 'Received a snapshot of the first control plane');
  }

  #useCopy(copy: LogCopy | undefined): void {
    this.#copy = copy;
    this.#writer = copy === undefined ? undefined : new CopyWriter(copy, (group) => this.#written(group));
    copy?.onLost(this.#options.onLost);
    this.#progressed({});
  }

  #progressed(change: Partial<CopyState>): void {
    const revision = this.#copy?.lastRevision ?? 0;
    const newestRevision = Math.max(revision, change.newestRevision ?? this.#state.newestRevision);
    this.#state = { ...this.#state, ...change, revision, newestRevision };
    this.#onProgress();
  }
}

/**
 * Opens and locks the copy in the directory. Resolves to `undefined` if there is none that can be used. Throws other errors of
 * the storage, such as `locked`.
 */
export async function openCopy({
  directory,
  logger,
}: Pick<FollowerOptions, 'directory' | 'logger'>): Promise<LogCopy | undefined> {
  try {
    return await LogCopy.open(directory);
  } catch (error) {
    if (!isStorageError(error, 'unusable')) throw error;
    logger.error({ err: error }, 'The copy cannot be used, and is replaced by a snapshot');
    return undefined;
  }
}

const hasSealed = (records: RecordColumns): boolean => storedValues(records).some(({ value }) => isSealed(value));
