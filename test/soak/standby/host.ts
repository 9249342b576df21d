/**
 * Runs one host of the pair: a control plane in a network namespace, with a disk and faults of its own, which is started again
 * whenever it exits, as by systemd.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { systemClock } from '../../../api/machinery/clock.ts';
import { peerClient, readClusterKeys } from '../../../controlplane/standby/identity.ts';
import { STANDBY_PATH } from '../../../controlplane/standby/peer-paths.ts';
import { readRole, type Role } from '../../../controlplane/standby/role.ts';
import type { StandbyReport } from '../../../controlplane/standby/standby.ts';
import { until } from '../../until.ts';
import { type Answer, Api } from '../api.ts';
import { type DISK_FAULTS, PreloadedFaults } from '../preloaded-faults.ts';
import { clientAddressOf, namespaceOf, pairAddressOf } from './network.ts';

const ORCHLET = join(import.meta.dirname, '../../../bin/orchlet');
const TOKEN = 'soak';
const PORT = 6443;
const DISK_MIB = 64;
/** How far the clocks of the hosts are apart. */
const CLOCK_DIFFERENCE_SECONDS = 60;
const STORAGE_FAILED = 74;
/** Matches what a control plane prints when it exits, or does not start, because another one has taken its place. */
const FENCED = /(took|has taken) the place of this one/;

/** The API of one host. Its responses name the host. */
class HostApi extends Api {
  readonly #host: number;

  constructor(host: number) {
    super(PORT, TOKEN, clientAddressOf(host));
    this.#host = host;
  }

  override async call(method: string, path: string, body?: unknown, timeoutMs?: number): Promise<Answer> {
    return { ...(await super.call(method, path, body, timeoutMs)), server: this.#host };
  }
}

export interface CommandResult {
  readonly status: number | null;
  readonly output: string;
}

/** One of the two hosts. */
export class PairHost {
  readonly number: number;
  readonly api: Api;
  readonly url: string;
  readonly dataDirectory: string;
  /** How far the wall clock of this host is ahead. */
  readonly aheadMs: number;
  readonly #scratch: string;
  readonly #disk: string;
  readonly #faults: PreloadedFaults;
  #child: ChildProcess | undefined;
  #isDown = true;
  #standbyOf: string | undefined;
  #isFailing = false;
  #log = '';
  /** The messages of exits that no fault explains. */
  readonly crashes: string[] = [];
  starts = 0;
  storageFailures = 0;

  constructor(number: number, parent: string) {
    this.number = number;
    this.#scratch = join(parent, `host${number}`);
    this.#disk = join(this.#scratch, 'disk');
    mkdirSync(this.#disk, { recursive: true });
    const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m`, 'tmpfs', this.#disk]);
    if (mounted.status !== 0) throw new Error(`mount: ${mounted.stderr.toString()}`);
    this.dataDirectory = join(this.#disk, 'data');
    writeFileSync(join(this.#scratch, 'tokens.csv'), `${TOKEN},soak,soak,"system:masters"\n`);
    this.#faults = new PreloadedFaults(this.#scratch);
    this.aheadMs = number * CLOCK_DIFFERENCE_SECONDS * 1000;
    this.#faults.clockAhead(number * CLOCK_DIFFERENCE_SECONDS);
    this.api = new HostApi(number);
    this.url = `https://${pairAddressOf(number)}:${PORT}`;
  }

  get log(): string {
    return this.#log;
  }

  /** The role in the host's data directory. */
  get role(): Role {
    return readRole(this.dataDirectory);
  }

  /** Whether the process is stopped, and is not started again. */
  get isDown(): boolean {
    return this.#isDown;
  }

  /** Whether the next start, and those after it, have `--standby-of`. */
  get isStandbyOf(): string | undefined {
    return this.#standbyOf;
  }

  /** Copies the keys and certificates of the other host, as an operator does before a start as standby. */
  takeKeysOf(other: PairHost): void {
    cpSync(join(other.dataDirectory, 'pki'), join(this.dataDirectory, 'pki'), { recursive: true });
  }

  /** Starts the process, and again whenever it exits. */
  up(standbyOf: string | undefined): void {
    this.#standbyOf = standbyOf;
    if (!this.#isDown) return;
    this.#isDown = false;
    this.#launch();
  }

  /** Kills the process, which is started again. */
  kill(): void {
    this.#child?.kill('SIGKILL');
  }

  /** Kills the process. It stays down. */
  async down(): Promise<void> {
    this.#isDown = true;
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }

  /** Stops the process with SIGSTOP, so that its connections stay open. */
  freeze(): void {
    this.#child?.kill('SIGSTOP');
  }

  /** Continues a frozen process. */
  thaw(): void {
    this.#child?.kill('SIGCONT');
  }

  /** Lets the disk or its fsync fail once. The process is expected to exit. */
  async fails(fault: 'fsyncFails' | 'writeFails'): Promise<void> {
    const { storageFailures } = this;
    this.#isFailing = true;
    this.#faults.disk(fault);
    try {
      await until('the exit of a process whose disk fails', () => this.storageFailures > storageFailures);
    } finally {
      this.#faults.disk('none');
      this.#isFailing = false;
    }
  }

  /** Lets the disk take no more data, as a full one does. */
  fill(fault: keyof typeof DISK_FAULTS): void {
    this.#faults.disk(fault);
  }

  /** Replaces the host by one that has the keys of the cluster and no data. */
  async forget(): Promise<void> {
    await this.down();
    rmSync(join(this.dataDirectory, 'storage'), { recursive: true, force: true });
  }

  /** Resolves when `/readyz` is ok. */
  async ready(timeoutMs = 120_000): Promise<void> {
    const ok = async (): Promise<boolean> => (await this.api.call('GET', '/readyz', undefined, 5000)).status === 200;
    await this.#until('a ready control plane', ok, timeoutMs);
  }

  /** Resolves when this standby has everything that the first has at some time after the call. */
  async following(timeoutMs = 120_000): Promise<void> {
    const sinceMs = Date.now() + this.aheadMs;
    await this.#until(
      'a complete copy',
      async () => {
        const { isConnected, completeAtMs } = await this.#report();
        return isConnected && completeAtMs > sinceMs;
      },
      timeoutMs,
    );
  }

  async #report(): Promise<StandbyReport> {
    const url = `https://${clientAddressOf(this.number)}:${PORT}`;
    const client = peerClient(url, await readClusterKeys(this.dataDirectory), systemClock, { timeoutMs: 5000 });
    try {
      return (await json((await client.raw({ method: 'GET', path: STANDBY_PATH })).body)) as StandbyReport;
    } finally {
      client.close();
    }
  }

  /** Runs a command of this host. */
  async orchlet(...args: readonly string[]): Promise<CommandResult> {
    const child = this.#spawn([...args, '--data-dir', this.dataDirectory]);
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (part: Buffer) => (output += part.toString()));
    const [status] = (await once(child, 'close')) as [number | null];
    return { status, output };
  }

  async remove(): Promise<void> {
    this.api.close();
    await this.down();
    spawnSync('umount', [this.#disk]);
    rmSync(this.#scratch, { recursive: true, force: true });
  }

  #until(what: string, check: () => Promise<boolean>, timeoutMs: number): Promise<boolean> {
    return until(what, check, timeoutMs).catch((error: unknown) => {
      throw new Error(`${String(error)} on host ${this.number}:\n${this.#log.slice(-3000)}`, { cause: error });
    });
  }

  #spawn(args: readonly string[]): ChildProcess {
    return spawn('nsenter', [`--net=/run/netns/${namespaceOf(this.number)}`, ORCHLET, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...this.#faults.environment },
    });
  }

  #launch(): void {
    this.starts += 1;
    const child = this.#spawn([
      ...['controlplane', '--data-dir', this.dataDirectory, '--secure-port', String(PORT), '--scheduler=false'],
      ...['--advertise-address', pairAddressOf(this.number), '--manifests-dir', ''],
      ...['--token-auth-file', join(this.#scratch, 'tokens.csv'), '--etcd-compaction-interval', '6s'],
      ...(this.#standbyOf === undefined ? [] : ['--standby-of', this.#standbyOf]),
    ]);
    this.#child = child;
    let own = '';
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (part: Buffer) => {
        own = (own + part.toString()).slice(-20_000);
        this.#log = own;
      });
    child.once('exit', (code, signal) => {
      if (this.#isDown) return;
      const isFenced = FENCED.test(own);
      if (code === STORAGE_FAILED && !isFenced) this.storageFailures += 1;
      if (signal !== 'SIGKILL' && !isFenced && !(code === STORAGE_FAILED && this.#isFailing))
        this.crashes.push(`host ${this.number}: exit code ${code}, signal ${signal}:\n${own.slice(-3000)}`);
      systemClock.after(isFenced ? 1000 : 100, () => {
        if (!this.#isDown && this.#child === child) this.#launch();
      });
    });
  }
}
