/**
 * Runs etcd as a child process: starts it again when it exits, and stops it when the control plane closes.
 *
 * The etcd of a control plane that is killed goes on as a member, and the next start stops it first. etcd logs to a file: a
 * pipe would break with the control plane, and a Go program that writes to a broken pipe is killed.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { Backoff } from '../../../api/machinery/backoff.ts';
import { background, untilDone } from '../../../api/machinery/background.ts';
import { pause } from '../../../api/machinery/clock.ts';
import { replaceFile } from '../../../api/machinery/replace-file.ts';
import { EtcdLog, REMOVED_MESSAGE } from './etcd-log.ts';
import type { EtcdRunner, EtcdRunnerOptions } from './etcd-runner.ts';
import { STOP_MS, stopLeftBehindEtcd } from './left-behind-etcd.ts';

const RESTART = { firstMs: 200, longestMs: 10_000 };
const RETRY_WRITE = { firstMs: 1000, longestMs: 30_000 };
/** A process that ran for this long starts again after the shortest delay. */
const STEADY_MS = 60_000;

/** Runs at most one process at a time. Restarts etcd with a backoff, unless the member was removed from its cluster. */
export class EtcdSupervisor implements EtcdRunner {
  readonly #options: EtcdRunnerOptions;
  readonly #log: EtcdLog;
  readonly #stop = new AbortController();
  #child: ChildProcess | undefined;
  #running: Promise<void> | undefined;

  constructor(options: EtcdRunnerOptions) {
    this.#options = options;
    this.#log = new EtcdLog(options.logFile);
  }

  lastLine(): Promise<string> {
    return this.#log.lastLine();
  }

  /**
   * Stops the etcd of an earlier control plane, and starts another one. Resolves before it answers.
   * Throws a StartError while another control plane runs the etcd of this directory.
   */
  async start(): Promise<void> {
    await stopLeftBehindEtcd(this.#options);
    this.#running = this.#supervise();
    const { logger, clock } = this.#options;
    background(this.#running, { logger, what: 'Running etcd' });
    background(this.#log.limitSize({ clock, logger, signal: this.#stop.signal }), {
      logger,
      what: 'Shortening the log of etcd',
    });
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
      if (await this.#log.wasRemoved()) {
        onRemoved(new Error(REMOVED_MESSAGE));
        return;
      }
      if (clock.monotonic() - startedMs > STEADY_MS) backoff.reset();
      logger.error({ exit, lastLine: await this.lastLine() }, 'etcd exited and is started again');
      await pause(clock, backoff.next(), this.#stop.signal);
    }
  }

  /** Resolves to the exit code or the signal of the process, as text. */
  async #runOnce(): Promise<string> {
    const { binary, arguments: flags } = this.#options;
    const child = spawn(binary, flags, { stdio: 'ignore', env: ownEnvironment() });
    this.#child = child;
    const ended = new Promise<string>((resolve) => {
      child.once('error', (error) => resolve(error.message));
      child.once('exit', (code, signal) => resolve(signal === null ? `exit code ${code}` : signal));
    });
    const exited = new AbortController();
    const writing = child.pid === undefined ? undefined : this.#writePid(child.pid, exited.signal);
    const exit = await ended;
    exited.abort();
    await writing;
    return exit;
  }

  /** Tries until the file is written or the process has exited: on a full disk, etcd is supervised all the same. */
  async #writePid(pid: number, signal: AbortSignal): Promise<void> {
    const { pidFile, clock, logger } = this.#options;
    const onError = (error: unknown): void =>
      logger.warn({ err: error, path: pidFile }, 'The process id of etcd could not be written, retrying');
    const write = (): Promise<void> => replaceFile(pidFile, `${pid}\n`, { mode: 0o600 });
    await untilDone(write, { clock, backoff: new Backoff(RETRY_WRITE), signal, onError });
  }
}

/** Returns the environment without the variables of etcd, which takes each of its flags from there as well. */
function ownEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('ETCD_')));
}
