/**
 * Runs etcd as a child process: starts it again when it exits, and stops it when the control plane closes.
 * `start/embedded-etcd.ts` starts it.
 *
 * The etcd of a control plane that is killed goes on as a member. The next start finds it by the file of its process id, and
 * stops it before it starts another one, because two cannot have the same data. etcd logs to a file: a pipe would break with
 * the control plane, and a Go program that writes to a broken pipe is killed.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, open, readFile, stat, truncate } from 'node:fs/promises';
import type { Logger } from '../../api/component/logger.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import { background } from '../../api/machinery/background.ts';
import { type Clock, pause } from '../../api/machinery/clock.ts';
import { replaceFile } from '../../api/machinery/replace-file.ts';
import { StartError } from '../model/start-error.ts';

interface EtcdSupervisorOptions {
  /** The program: a name in PATH, or a path. */
  readonly binary: string;
  readonly arguments: readonly string[];
  /** The directory of the data, by which a process that was left behind is recognized. */
  readonly dataDirectory: string;
  readonly pidFile: string;
  /** The file that the arguments name for the log. It is kept below `LOG_BYTES`, with one older part. */
  readonly logFile: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called if this member was removed from its cluster, so that it cannot start again. */
  readonly onRemoved: (error: Error) => void;
}

const RESTART = { firstMs: 200, longestMs: 10_000 };
/** A process that ran for this long starts again without a delay. */
const STEADY_MS = 60_000;
/** etcd hands its leadership over before it exits. */
const STOP_MS = 10_000;
const LOG_BYTES = 8 * 1024 * 1024;
const CHECK_LOG_MS = 60_000;
const TAIL_BYTES = 16 * 1024;
const REMOVED = /the member has been permanently removed from the cluster/;

/** Runs at most one process at a time. Restarts etcd with a backoff, unless the member was removed from its cluster. */
export class EtcdSupervisor {
  readonly #options: EtcdSupervisorOptions;
  readonly #stop = new AbortController();
  #child: ChildProcess | undefined;
  #running: Promise<void> | undefined;

  constructor(options: EtcdSupervisorOptions) {
    this.#options = options;
  }

  /** The last line that etcd logged, for the errors of a start. */
  async lastLine(): Promise<string> {
    return (await tailOf(this.#options.logFile)).trim().split('\n').at(-1) ?? '';
  }

  /**
   * Stops the etcd of an earlier control plane, and starts another one. Resolves before it answers.
   * Throws a StartError while another control plane runs the etcd of this directory.
   */
  async start(): Promise<void> {
    await stopLeftBehind(this.#options);
    this.#running = this.#supervise();
    const { logger } = this.#options;
    background(this.#running, { logger, what: 'Running etcd' });
    background(this.#boundLog(), { logger, what: 'Shortening the log of etcd' });
  }

  async close(): Promise<void> {
    this.#stop.abort();
    const child = this.#child;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      child.kill('SIGTERM');
      const late = this.#options.clock.after(STOP_MS, () => {
        child.kill('SIGKILL');
      });
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
      late.cancel();
    }
    await this.#running;
  }

  async #supervise(): Promise<void> {
    const { clock, logger, onRemoved } = this.#options;
    const backoff = new Backoff(RESTART);
    while (!this.#stop.signal.aborted) {
      const startedMs = clock.monotonic();
      const exit = await this.#runOnce();
      if (this.#stop.signal.aborted) return;
      if (REMOVED.test(await tailOf(this.#options.logFile))) {
        onRemoved(new Error('this member was removed from the etcd cluster: remove its data to join again'));
        return;
      }
      if (clock.monotonic() - startedMs > STEADY_MS) backoff.reset();
      logger.error({ exit, lastLine: await this.lastLine() }, 'etcd exited and is started again');
      await pause(clock, backoff.next(), this.#stop.signal);
    }
  }

  /** Resolves to the exit code or the signal of the process, as text. */
  async #runOnce(): Promise<string> {
    const { binary, arguments: given, pidFile } = this.#options;
    const child = spawn(binary, given, { stdio: 'ignore', env: ownEnvironment() });
    this.#child = child;
    const ended = new Promise<string>((resolve) => {
      child.once('error', (error) => resolve(error.message));
      child.once('exit', (code, signal) => resolve(signal === null ? `exit code ${code}` : signal));
    });
    if (child.pid !== undefined) await replaceFile(pidFile, `${child.pid}\n`, { mode: 0o600 });
    return ended;
  }

  /** Limits the size of etcd's log. etcd opens the file to append, so that it writes on after the file was shortened. */
  async #boundLog(): Promise<void> {
    const { logFile, clock } = this.#options;
    while (!this.#stop.signal.aborted) {
      const size = (await stat(logFile).catch(() => undefined))?.size ?? 0;
      if (size > LOG_BYTES) {
        await copyFile(logFile, `${logFile}.old`);
        await truncate(logFile);
      }
      await pause(clock, CHECK_LOG_MS, this.#stop.signal);
    }
  }
}

/** The end of a file; empty if there is none. */
async function tailOf(path: string): Promise<string> {
  const file = await open(path).catch(() => undefined);
  if (file === undefined) return '';
  try {
    const { size } = await file.stat();
    const { buffer, bytesRead } = await file.read(
      Buffer.alloc(TAIL_BYTES),
      0,
      TAIL_BYTES,
      Math.max(0, size - TAIL_BYTES),
    );
    return buffer.toString('utf8', 0, bytesRead);
  } finally {
    await file.close();
  }
}

/** Returns the environment without the variables of etcd, which takes each of its flags from there as well. */
function ownEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('ETCD_')));
}

/** Throws a StartError while another control plane runs the process. */
async function stopLeftBehind({ pidFile, dataDirectory, clock, logger }: EtcdSupervisorOptions): Promise<void> {
  const pid = Number((await readFile(pidFile, 'utf8').catch(() => '')).trim());
  if (!Number.isInteger(pid) || pid <= 1 || !(await isEtcdOf(pid, dataDirectory))) return;
  const parent = await parentOf(pid);
  if (
    parent > 1 &&
    parent !== process.pid &&
    (await commandOf(parent)).some((word) => /(^|\/)orchlet$|cli\/main/.test(word))
  )
    throw new StartError(
      `process ${parent} runs the etcd of ${dataDirectory}: stop it first, or give another --data-dir`,
    );
  logger.warn({ pid }, 'Stopping the etcd of an earlier control plane');
  process.kill(pid, 'SIGTERM');
  const end = clock.monotonic() + STOP_MS;
  while (await isEtcdOf(pid, dataDirectory)) {
    if (clock.monotonic() > end) process.kill(pid, 'SIGKILL');
    await clock.sleep(50);
  }
}

async function isEtcdOf(pid: number, dataDirectory: string): Promise<boolean> {
  return (await commandOf(pid)).includes(dataDirectory);
}

/** The words of a command line; none if the process is gone. */
async function commandOf(pid: number): Promise<readonly string[]> {
  return (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
}

async function parentOf(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Number(/^PPid:\s*(\d+)/m.exec(status)?.[1] ?? 0);
}
