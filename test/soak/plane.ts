/**
 * Runs the tested control plane: a process with preloaded faults, which is restarted whenever it exits, as systemd does. Its
 * data directory is on a small tmpfs if the user may mount one.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../api/machinery/clock.ts';
import { freePort } from '../integration/free-port.ts';
import { until } from '../until.ts';
import { Api } from './api.ts';
import { type DISK_FAULTS, PreloadedFaults } from './preloaded-faults.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');
const HOOK = join(import.meta.dirname, 'storage-thread-hook.ts');
const TOKEN = 'soak';
const DISK_MIB = 64;
/** The exit code after a failure of the storage. */
const STORAGE_FAILED = 74;

/** The tested control plane with its disk. */
export class SoakPlane {
  readonly api: Api;
  readonly hasOwnDisk: boolean;
  readonly #scratch: string;
  readonly #disk: string;
  readonly #port: number;
  readonly #faults: PreloadedFaults;
  #child: ChildProcess | undefined;
  #isStopping = false;
  #isTerminating = false;
  #log = '';
  /** The messages of exits that no fault explains. */
  readonly crashes: string[] = [];
  starts = 0;
  storageFailures = 0;

  private constructor(scratch: string, port: number, diskMib: number) {
    this.#scratch = scratch;
    this.#disk = join(scratch, 'disk');
    mkdirSync(this.#disk);
    const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${diskMib}m`, 'tmpfs', this.#disk], {
      stdio: 'ignore',
    });
    this.hasOwnDisk = mounted.status === 0;
    this.#port = port;
    this.#faults = new PreloadedFaults(scratch);
    this.api = new Api(port, TOKEN);
  }

  /** Starts a control plane with a disk of this size, and waits until it is ready. */
  static async start(diskMib = DISK_MIB): Promise<SoakPlane> {
    const scratch = mkdtempSync(join(tmpdir(), 'orchlet-soak-'));
    const plane = new SoakPlane(scratch, await freePort(), diskMib);
    writeFileSync(join(scratch, 'tokens.csv'), `${TOKEN},soak,soak,"system:masters"\n`);
    plane.#launch();
    await plane.ready();
    return plane;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  get log(): string {
    return this.#log;
  }

  /**
   * Resolves when `/readyz` is ok, over any number of restarts. The time limit is for a start that never ends: on a host with
   * much other work, one has taken a minute.
   */
  async ready(timeoutMs = 300_000): Promise<void> {
    const ok = async (): Promise<boolean> => (await this.api.call('GET', '/readyz', undefined, 5000)).status === 200;
    await until('a ready control plane', ok, timeoutMs);
  }

  /** Causes a fault of the disk; `none` ends it. */
  fault(fault: keyof typeof DISK_FAULTS): void {
    this.#faults.disk(fault);
  }

  /** Sets how far the wall clock is ahead. */
  clockAhead(seconds: number): void {
    this.#faults.clockAhead(seconds);
  }

  /** Returns whether there was a process to kill. */
  kill(): boolean {
    const child = this.#child;
    return child !== undefined && child.exitCode === null && child.signalCode === null && child.kill('SIGKILL');
  }

  /** Ends the thread of the storage like a crash. */
  killStorageThread(): void {
    this.#child?.kill('SIGUSR2');
  }

  /** Stops the process like systemd does. */
  terminate(): void {
    this.#isTerminating = true;
    this.#child?.kill('SIGTERM');
  }

  /** The size of the database and its write-ahead log. */
  get storageBytes(): number {
    const file = join(this.#disk, 'data/storage/orchlet.db');
    return [file, `${file}-wal`].reduce((sum, one) => sum + (statSync(one, { throwIfNoEntry: false })?.size ?? 0), 0);
  }

  /** Fills the disk completely. */
  fillDisk(): void {
    for (const size of [1 << 20, 4096, 1]) {
      try {
        for (;;) writeFileSync(join(this.#disk, 'filler'), Buffer.alloc(size), { flag: 'a' });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
    }
  }

  /** Removes what `fillDisk` has written. */
  emptyDisk(): void {
    rmSync(join(this.#disk, 'filler'), { force: true });
  }

  async remove(): Promise<void> {
    this.#isStopping = true;
    this.api.close();
    const child = this.#child;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
      child.kill('SIGKILL');
      await exited;
    }
    if (this.hasOwnDisk) spawnSync('umount', [this.#disk], { stdio: 'ignore' });
    rmSync(this.#scratch, { recursive: true, force: true });
  }

  #launch(): void {
    this.starts += 1;
    const args = [
      '--data-dir',
      join(this.#disk, 'data'),
      '--bind-address',
      '127.0.0.1',
      '--secure-port',
      String(this.#port),
    ];
    const more = ['--token-auth-file', join(this.#scratch, 'tokens.csv'), '--etcd-compaction-interval', '6s'];
    const child = spawn(ORCHLET, ['controlplane', ...args, ...more], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...process.env,
        NODE_OPTIONS: `--import=${HOOK}`,
        ...this.#faults.environment,
      },
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (part: Buffer) => (this.#log = (this.#log + part.toString()).slice(-20_000)));
    child.once('exit', (code, signal) => {
      if (this.#isStopping) return;
      const isTerminated = this.#isTerminating;
      this.#isTerminating = false;
      if (code === STORAGE_FAILED) this.storageFailures += 1;
      else if (signal !== 'SIGKILL' && !(isTerminated && code === 0))
        this.crashes.push(`exit code ${code}, signal ${signal}:\n${this.#log.slice(-3000)}`);
      systemClock.after(100, () => {
        if (!this.#isStopping) this.#launch();
      });
    });
  }
}
