/**
 * Holds the file of `--lock-file` while the agent runs, so that a second agent waits. With `--exit-on-lock-contention` the
 * agent stops when another process waits for the file, or when the file is deleted. Node.js cannot lock files, so a child
 * process `flock` holds the lock. It releases the lock when its standard input closes, which happens however the agent stops.
 */
import { spawn } from 'node:child_process';
import { readFile, stat } from 'node:fs/promises';
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import { type Clock, pause } from '../../../api/machinery/clock.ts';

interface LockFileOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Ends the wait for the lock, and the checks for waiters. */
  readonly signal: AbortSignal;
  /** Called when another process waits for the file or the file is gone. Without it nothing is checked. */
  readonly onContention: (() => void) | undefined;
}

/** The interval of the checks for waiters. */
const POLL_MS = 1000;
const STOPPED = 'stopped while waiting for the lock file';
/** The length of each part of the output of `flock` that an error quotes. */
const QUOTED_CHARACTERS = 1000;

/**
 * Waits while another process holds the lock. Resolves to a function that unlocks the file, once it is locked. Rejects if the
 * file cannot be locked, if `flock` is not installed, and if the signal aborts before.
 */
export async function acquireLockFile(options: LockFileOptions): Promise<() => Promise<void>> {
  const { path, logger, signal } = options;
  if (signal.aborted) throw new Error(STOPPED);
  const child = spawn('flock', ['--exclusive', path, 'sh', '-c', 'echo locked; exec cat'], {
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const release = async (): Promise<void> => {
    // flock does not read its input before it has the lock, so it needs a signal.
    if (!isLocked) child.kill();
    child.stdin.end();
    await ended;
  };
  let isLocked = false;
  let errorOutput = '';
  child.stderr.on('data', (data: Buffer) => (errorOutput += data.toString('utf8').slice(0, QUOTED_CHARACTERS)));
  const onAbort = (): void =>
    background(release(), { logger, what: 'Releasing the lock file', fields: { file: path } });
  signal.addEventListener('abort', onAbort, { once: true });
  logger.info({ file: path }, 'Waiting for the lock file');
  await new Promise<void>((resolve, reject) => {
    child.once('error', (error: NodeJS.ErrnoException) =>
      reject(
        new Error(
          error.code === 'ENOENT'
            ? '--lock-file needs the program flock, which is not installed (package util-linux)'
            : `the lock file ${path} cannot be locked: ${error.message}`,
          { cause: error },
        ),
      ),
    );
    child.stdout.once('data', () => {
      isLocked = true;
      resolve();
    });
    child.once('close', () =>
      reject(
        new Error(
          signal.aborted ? STOPPED : `the lock file ${path} cannot be locked: ${errorOutput.trim() || 'flock exited'}`,
        ),
      ),
    );
  });
  signal.removeEventListener('abort', onAbort);
  logger.info({ file: path }, 'Acquired the lock file');
  if (options.onContention !== undefined)
    background(watchForOthers(options, options.onContention), {
      logger,
      what: 'Watching for other users of the lock file',
      fields: { file: path },
      signal,
    });
  return release;
}

/** Calls `onContention` once another process waits for the lock or the file was removed. */
async function watchForOthers(
  { path, clock, logger, signal }: LockFileOptions,
  onContention: () => void,
): Promise<void> {
  const { ino } = await stat(path);
  while (!signal.aborted) {
    try {
      // A removed file means that another process wants the lock.
      const isThere = (await stat(path).catch(() => undefined))?.ino === ino;
      if (!isThere || waitsFor(await readFile('/proc/locks', 'utf8'), ino)) {
        logger.warn(
          { file: path },
          isThere ? 'Another process wants the lock file: stopping' : 'The lock file was removed: stopping',
        );
        onContention();
        return;
      }
    } catch (error) {
      logger.warn({ err: error }, 'Cannot detect waiters for the lock file, because /proc/locks is not readable');
      return;
    }
    await pause(clock, POLL_MS, signal);
  }
}

/** Whether `/proc/locks` shows a process that waits for a lock of the file. Pure. */
export function waitsFor(locks: string, inode: number): boolean {
  return locks.split('\n').some((line) => /^\d+: ->\s+FLOCK\s/.test(line) && new RegExp(`:${inode}\\s`).test(line));
}
