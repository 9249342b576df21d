/**
 * The thread that owns the SQLite file, so that no fsync blocks the event loop. Sends every record when it opens, then
 * answers one request after the other. Started by `sqlite-storage.ts`.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { StorageError } from '../storage.ts';
import { codeOf, openDatabase, type LogDatabase } from './database.ts';
import { OPENING, type WorkerOptions, type WorkerRequest, type WorkerResponse } from './protocol.ts';

function serve(port: NonNullable<typeof parentPort>): void {
  const answer = (response: WorkerResponse, transfer: ArrayBuffer[] = []): void => port.postMessage(response, transfer);
  let database: LogDatabase;
  try {
    database = openDatabase(workerData as WorkerOptions);
    for (const records of database.load()) answer({ type: 'rows', records }, [records.values]);
  } catch (error) {
    answer(failure(OPENING, error));
    port.close();
    return;
  }
  const { compactedRevision, lastRevision } = database;
  answer({ type: 'opened', compactedRevision, lastRevision });
  port.on('message', (request: WorkerRequest) => {
    try {
      perform(database, request);
      answer({ type: 'done', id: request.id });
    } catch (error) {
      answer(failure(request.id, error));
    }
    if (request.type === 'close') port.close();
    else checkpoint(database);
  });
}

function perform(database: LogDatabase, request: WorkerRequest): void {
  if (request.type === 'append') database.append(request.records);
  else if (request.type === 'remove')
    database.remove(request.compactedRevision, request.lastRevision, request.revisions);
  else if (request.type === 'copy') database.copyTo(request.file);
  else database.close();
}

function checkpoint(database: LogDatabase): void {
  try {
    database.checkpointIfLong();
  } catch (error) {
    // No room to write the file: the write-ahead log keeps everything, the next commit tries again.
    if (!['SQLITE_FULL', 'SQLITE_BUSY'].includes(codeOf(error)) && !codeOf(error).startsWith('SQLITE_IOERR'))
      throw error;
  }
}

function failure(id: number, error: unknown): WorkerResponse {
  if (error instanceof StorageError) return { type: 'failed', id, code: error.code, message: error.message };
  const message = error instanceof Error ? error.message : String(error);
  if (codeOf(error) === 'SQLITE_FULL') return { type: 'failed', id, code: 'full', message: 'the disk is full' };
  return { type: 'failed', id, code: 'unknown-outcome', message };
}

if (parentPort !== null) serve(parentPort);
