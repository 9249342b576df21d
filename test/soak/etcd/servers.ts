/**
 * Runs the tested servers: control planes on one etcd cluster, each behind a proxy that cuts it off from one member, and
 * restarted whenever they exit. Requests go to a server that is drawn for each of them.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../../api/machinery/clock.ts';
import { HeldProxy } from '../../held-proxy.ts';
import { freePort } from '../../integration/free-port.ts';
import { until } from '../../until.ts';
import { type Answer, Api, type OpenWatch, type WatchFrame } from '../api.ts';
import { PreloadedFaults } from '../preloaded-faults.ts';
import type { Random } from '../random.ts';

const ORCHLET = join(import.meta.dirname, '../../../bin/orchlet');
const TOKEN = 'soak';

export interface ServersOptions {
  /** The URLs of the members of etcd. */
  readonly etcd: readonly string[];
  readonly more?: readonly string[];
  /** The server whose CA and keys this one gets, because all servers of a cluster have the same. */
  readonly like?: SoakServer | undefined;
  /** The program of the server. The default is this checkout. */
  readonly program?: string | undefined;
  /** How far the wall clock of the server is ahead. It needs a C compiler. */
  readonly clockAheadSeconds?: number | undefined;
}

/** One control plane with its proxy. */
export class SoakServer {
  readonly api: Api;
  readonly proxies: readonly HeldProxy[];
  readonly url: string;
  /** A token of an administrator. */
  readonly token = TOKEN;
  readonly #directory: string;
  readonly #program: string;
  readonly #arguments: readonly string[];
  readonly #faults: PreloadedFaults | undefined;
  #child: ChildProcess | undefined;
  #isStopping = false;
  #isExpected = false;
  #log = '';
  starts = 0;
  /** The messages of exits that no fault explains. */
  readonly crashes: string[] = [];

  private constructor(port: number, proxies: readonly HeldProxy[], options: ServersOptions) {
    const { more = [], program = ORCHLET, clockAheadSeconds } = options;
    this.#program = program;
    this.#directory = mkdtempSync(join(tmpdir(), 'orchlet-soak-etcd-'));
    writeFileSync(join(this.#directory, 'tokens.csv'), `${TOKEN},soak,soak,"system:masters"\n`);
    this.#faults = clockAheadSeconds === undefined ? undefined : new PreloadedFaults(this.#directory);
    this.#faults?.clockAhead(clockAheadSeconds ?? 0);
    this.proxies = proxies;
    this.api = new Api(port, TOKEN);
    this.url = `https://127.0.0.1:${port}`;
    this.#arguments = [
      ...['controlplane', '--data-dir', join(this.#directory, 'data'), '--bind-address', '127.0.0.1'],
      ...['--secure-port', String(port), '--token-auth-file', join(this.#directory, 'tokens.csv')],
      ...['--etcd-servers', proxies.map(({ url }) => url).join(','), '--etcd-compaction-interval', '5s', ...more],
    ];
  }

  /** Starts a server behind its own proxies to etcd. `like` is the server whose keys it shares. */
  static async start(options: ServersOptions): Promise<SoakServer> {
    const { etcd, like } = options;
    const proxies = await Promise.all(etcd.map((url) => HeldProxy.to(url)));
    const server = new SoakServer(await freePort(), proxies, options);
    if (like !== undefined) cpSync(like.#keys, server.#keys, { recursive: true });
    server.#launch();
    await server.ready();
    return server;
  }

  get #keys(): string {
    return join(this.#directory, 'data/pki');
  }

  /** The certificate of the cluster's CA, as PEM. */
  get ca(): string {
    return readFileSync(join(this.#keys, 'ca.crt'), 'utf8');
  }

  get log(): string {
    return this.#log;
  }

  /** Resolves when `/readyz` is ok, over any number of restarts. */
  async ready(timeoutMs = 180_000): Promise<void> {
    const ok = async (): Promise<boolean> => (await this.api.call('GET', '/readyz', undefined, 5000)).status === 200;
    await until('a ready control plane', ok, timeoutMs).catch((error: unknown) => {
      throw new Error(`${String(error)}:\n${this.#log.slice(-3000)}`);
    });
  }

  /** Sets how far the wall clock is ahead, if the server was started with another clock than the host's. */
  clockAhead(seconds: number): void {
    this.#faults?.clockAhead(seconds);
  }

  /** Ends the process, which is started again. */
  kill(signal: NodeJS.Signals): void {
    this.#isExpected = true;
    this.#child?.kill(signal);
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
    for (const proxy of this.proxies) await proxy.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #launch(): void {
    this.starts += 1;
    const child = spawn(this.#program, this.#arguments, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...this.#faults?.environment },
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (part: Buffer) => (this.#log = (this.#log + part.toString()).slice(-20_000)));
    child.once('exit', (code, signal) => {
      if (this.#isStopping) return;
      // A start that does not find an etcd with a leader in time fails, and is tried again.
      const isWithoutEtcd = code === 1 && /\norchlet: (no etcd server|etcd at|Timeout: )[^\n]*\n$/.test(this.#log);
      if (!this.#isExpected && !isWithoutEtcd)
        this.crashes.push(`exit code ${code}, signal ${signal}:\n${this.#log.slice(-3000)}`);
      this.#isExpected = false;
      systemClock.after(100, () => {
        if (!this.#isStopping) this.#launch();
      });
    });
  }
}

/** Sends each request to a server that is drawn, as a load balancer does. */
export class AnyServer extends Api {
  readonly #servers: readonly SoakServer[];
  readonly #random: Random;

  constructor(servers: readonly SoakServer[], random: Random) {
    super(0, '');
    this.#servers = servers;
    this.#random = random;
  }

  override call(method: string, path: string, body?: unknown, timeoutMs?: number): Promise<Answer> {
    return this.#random.pick(this.#servers).api.call(method, path, body, timeoutMs);
  }

  override watch(
    path: string,
    onFrame: (frame: WatchFrame) => void,
  ): { readonly over: Promise<number>; readonly watch: OpenWatch } {
    return this.#random.pick(this.#servers).api.watch(path, onFrame);
  }
}
