/** Runs the thread that owns a SQLite file (`worker.ts`) and exchanges messages with it. */
import { join } from 'node:path';
import type { LogPage, RecordColumns, RecordMark } from '../stored-log.ts';
import { Worker } from 'node:worker_threads';
import type { LogMarks } from '../log-backend.ts';
import { StorageError } from '../storage.ts';
import { OPENING, type WorkerOptions, type WorkerRequest, type WorkerResponse } from './protocol.ts';

/** The name of the database in its directory. The copy of a standby has it too, so that it can become the storage. */
export const LOG_FILE = 'orchlet.db';

/** What the file held when it was opened: the marks of the log and, with `sendsRecords`, all records in order, in chunks. */
export interface Loaded {
  readonly chunks: RecordColumns[];
  readonly marks: LogMarks;
  readonly newest: RecordMark | undefined;
}

/** Returns the options with which a control plane opens its database in a directory. */
export function openingOptions(
  directory: string,
  { sizeLimitBytes = 0, reserveBytes = 0 }: { readonly sizeLimitBytes?: number; readonly reserveBytes?: number },
): WorkerOptions {
  const file = join(directory, LOG_FILE);
  return { file, lockFile: `${file}.pid`, sizeLimitBytes, reserveBytes, sendsRecords: true };
}

type Result = LogPage | boolean | undefined;

interface Waiting {
  resolve(result: Result): void;
  reject(error: StorageError): void;
}

interface Opening {
  resolve(loaded: Loaded): void;
  reject(error: StorageError): void;
}

/**
 * A running thread, which loads its modules and then waits for `open`. When it is lost, waiting requests reject with the
 * reason, and so do later ones.
 */
export class StorageThread {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #lastId = OPENING;
  /** The reason why the worker thread is gone. */
  #lost: StorageError | undefined;
  #lostListener: (error: Error) => void = () => undefined;
  #troubleListener: (problem: string | undefined) => void = () => undefined;
  readonly #opening: Opening;
  readonly #opened: Promise<Loaded>;
  #isOpened = false;

  constructor() {
    // In a release, the worker is a bundle beside the bundle of the program.
    const file = import.meta.url.endsWith('.ts')
      ? new URL('./worker.ts', import.meta.url)
      : new URL('./worker.js', import.meta.url);
    // The thread passes buffers on and keeps none, so a small young generation is enough.
    const resourceLimits = { maxYoungGenerationSizeMb: 2 };
    this.#worker = new Worker(file, { name: 'storage', resourceLimits });
    const { promise, resolve, reject } = Promise.withResolvers<Loaded>();
    this.#opening = { resolve, reject };
    this.#opened = promise;
    // A thread that is lost before it opens a database is reported by `open`.
    promise.catch(() => undefined);
    this.#listen();
    this.#worker.unref();
  }

  /**
   * Opens the database. Resolves when all records are loaded. Rejects with a StorageError. A later call with the same options
   * has the result of the first one.
   */
  open(options: WorkerOptions): Promise<Loaded> {
    if (this.#isOpened) return this.#opened;
    this.#isOpened = true;
    this.#worker.ref();
    this.#worker.postMessage(options);
    return this.#opened;
  }

  /** Calls the listener when the storage can no longer be used, or at once if that has happened. */
  onLost(listener: (error: Error) => void): void {
    if (this.#lost === undefined) this.#lostListener = listener;
    else listener(this.#lost);
  }

  /** Calls the listener with the problem of the storage when it begins, and with `undefined` when it ends. */
  onTrouble(listener: (problem: string | undefined) => void): void {
    this.#troubleListener = listener;
  }

  /** Closes the database, if one was opened, and ends the thread. Does nothing if the thread is gone. */
  async close(): Promise<void> {
    if (this.#lost !== undefined) return;
    this.#lostListener = () => undefined;
    if (this.#isOpened) await this.ask((id) => ({ type: 'close', id }));
    await this.#worker.terminate();
  }

  /** Resolves to the result of a request that has one. Rejects with a StorageError. */
  ask(request: (id: number) => WorkerRequest, transfer: ArrayBuffer[] = []): Promise<Result> {
    if (this.#lost !== undefined) return Promise.reject(this.#lost);
    this.#lastId += 1;
    const id = this.#lastId;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      // A process without other work may exit, but not before pending requests have their responses.
      this.#worker.ref();
      this.#worker.postMessage(request(id), transfer);
    });
  }

  #listen(): void {
    const chunks: RecordColumns[] = [];
    const lost = (cause: unknown): void => {
      if (this.#lost !== undefined) return;
      const error = new StorageError('unknown-outcome', 'the storage thread exited', { cause });
      this.#lost = error;
      this.#opening.reject(error);
      for (const waiting of this.#waiting.values()) waiting.reject(error);
      this.#waiting.clear();
      this.#lostListener(error);
    };
    this.#worker.on('error', lost);
    this.#worker.on('exit', (code) => lost(new Error(`exit code ${code}`)));
    this.#worker.on('message', (response: WorkerResponse) => {
      switch (response.type) {
        case 'rows':
          chunks.push(response.records);
          return;
        case 'opened':
          this.#opening.resolve({ chunks, marks: response.marks, newest: response.newest });
          break;
        case 'done':
          this.#waiting.get(response.id)?.resolve(response.result);
          this.#waiting.delete(response.id);
          break;
        case 'checkpoint':
          this.#troubleListener(response.problem);
          break;
        case 'failed': {
          const error = new StorageError(response.code, response.message);
          if (response.id === OPENING) this.#opening.reject(error);
          this.#waiting.get(response.id)?.reject(error);
          this.#waiting.delete(response.id);
          break;
        }
      }
      if (this.#waiting.size === 0) this.#worker.unref();
    });
  }
}
