/**
 * Owns a SQLite file in a thread of its own, so that an fsync does not block the event loop. The first message names the file.
 * The thread sends all records of it, unless a standby owns it.
 */
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { LogPage } from '../stored-log.ts';
import { parentPort } from 'node:worker_threads';
import { StorageError } from '../storage.ts';
import { openDatabase, type LogDatabase } from './database.ts';
import { OPENING, type WorkerOptions, type WorkerRequest, type WorkerResponse } from './protocol.ts';
import { codeOf, outcomeOf } from './sqlite-errors.ts';

function serve(port: NonNullable<typeof parentPort>, options: WorkerOptions): void {
  const answer = (response: WorkerResponse, transfer: ArrayBuffer[] = []): void => port.postMessage(response, transfer);
  let database: LogDatabase;
  try {
    database = openDatabase(options);
    if (options.sendsRecords)
      for (const records of database.load()) answer({ type: 'rows', records }, [records.values]);
  } catch (error) {
    answer(failure(OPENING, error));
    port.close();
    return;
  }
  answer({ type: 'opened', marks: database.marks, newest: database.newest() });
  const checkpoint = checkpointer(database, answer);
  port.on('message', (request: WorkerRequest) => {
    if (request.type === 'copy') {
      // A copy is the only request that later requests may overtake, because it yields between its steps.
      database.copyTo(request.file).then(
        () => answer({ type: 'done', id: request.id }),
        (error: unknown) => answer(failure(request.id, error)),
      );
      return;
    }
    try {
      const result = perform(database, request);
      if (result === undefined) answer({ type: 'done', id: request.id });
      else answer({ type: 'done', id: request.id, result }, typeof result === 'boolean' ? [] : [result.records.values]);
    } catch (error) {
      answer(failure(request.id, error));
    }
    if (request.type === 'close') port.close();
    else {
      checkpoint();
      if (request.type === 'append') database.renewLogSpace();
    }
  });
}

function perform(
  database: LogDatabase,
  request: Exclude<WorkerRequest, { readonly type: 'copy' }>,
): LogPage | boolean | undefined {
  switch (request.type) {
    case 'append':
      database.append(request.records);
      return undefined;
    case 'remove':
      database.remove(request.marks, request.revisions);
      return undefined;
    case 'probe':
      database.probe(request.lastRevision);
      return undefined;
    case 'read':
      return database.read(request.after, request.limitBytes);
    case 'has':
      return database.has(request.mark);
    case 'compact':
      database.compact(request.marks);
      return undefined;
    case 'ping':
      return undefined;
    case 'close':
      database.close();
      return undefined;
  }
}

/**
 * Runs checkpoints. A failed checkpoint loses nothing, because the write-ahead log keeps everything and the next checkpoint
 * writes the same pages again. But the log grows, so the main thread is notified.
 */
function checkpointer(database: LogDatabase, answer: (response: WorkerResponse) => void): () => void {
  let problem: string | undefined;
  const changed = (now: string | undefined): void => {
    if (now === problem) return;
    problem = now;
    answer({ type: 'checkpoint', problem });
  };
  return () => {
    try {
      if (database.checkpointIfLong()) changed(undefined);
    } catch (error) {
      changed(`the write-ahead log cannot be moved into the file: ${messageOf(error)}`);
    }
  };
}

const messageOf = (error: unknown): string => {
  const code = codeOf(error);
  const message = errorMessage(error);
  return code === '' ? message : `${message} (${code})`;
};

function failure(id: number, error: unknown): WorkerResponse {
  if (error instanceof StorageError) return { type: 'failed', id, code: error.code, message: error.message };
  switch (outcomeOf(codeOf(error))) {
    case 'full':
      return { type: 'failed', id, code: 'full', message: 'the disk is full' };
    case 'refused':
      return { type: 'failed', id, code: 'refused', message: messageOf(error) };
    case 'unknown':
      return { type: 'failed', id, code: 'unknown-outcome', message: messageOf(error) };
  }
}

const port = parentPort;
port?.once('message', (options: WorkerOptions) => serve(port, options));
