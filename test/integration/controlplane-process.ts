/** Runs `orchlet controlplane` as a separate process, and kubectl with it, without containers. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from './free-port.ts';
import { type KubectlResult } from './kubectl.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');

/** A control plane that a test stops and starts again. */
export class ControlPlaneProcess {
  readonly directory: string;
  readonly kubeconfig: string;
  readonly port: number;
  readonly #more: readonly string[];
  #child: ChildProcess | undefined;

  private constructor(port: number, more: readonly string[], directory: string | undefined) {
    this.directory = directory ?? temporaryFolder();
    this.kubeconfig = join(this.directory, 'admin.kubeconfig');
    this.port = port;
    this.#more = more;
  }

  /** Uses a new directory by default. */
  static async start(more: readonly string[] = [], directory?: string): Promise<ControlPlaneProcess> {
    const started = new ControlPlaneProcess(await freePort(), more, directory);
    await started.launch();
    return started;
  }

  /** Resolves when the control plane is ready. The data directory and the port stay the same over restarts. */
  async launch(): Promise<void> {
    const args = ['controlplane', '--data-dir', this.directory, '--bind-address', '127.0.0.1'];
    const child = spawn(ORCHLET, [...args, '--secure-port', String(this.port), ...this.#more], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    let log = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        log = (log + chunk.toString()).slice(-20_000);
      });
    }
    await until('a ready control plane', () => {
      if (child.exitCode !== null) throw new Error(`orchlet ended:\n${log}`);
      if (!existsSync(this.kubeconfig)) return undefined;
      return this.kubectl(['get', '--raw', '/readyz']).stdout === 'ok' ? true : undefined;
    }).catch((error: unknown) => {
      throw new Error(`the control plane did not start:\n${log}`, { cause: error });
    });
  }

  /** Runs kubectl and blocks. `path` selects another kubectl than the one on PATH. */
  kubectl(args: readonly string[], options: { readonly input?: string; readonly path?: string } = {}): KubectlResult {
    const done = spawnSync(options.path ?? 'kubectl', args, {
      encoding: 'utf8',
      env: { ...process.env, KUBECONFIG: this.kubeconfig, KUBECACHEDIR: join(this.directory, 'kubecache') },
      timeout: 60_000,
      maxBuffer: 64 * 1024 * 1024,
      ...(options.input === undefined ? {} : { input: options.input }),
    });
    return { code: done.status, stdout: done.stdout ?? '', stderr: done.stderr ?? '' };
  }

  /** Starts kubectl as the administrator and returns its process, for tests of streams. */
  spawn(args: readonly string[], path = 'kubectl'): ChildProcess {
    return spawn(path, args, { env: { ...process.env, KUBECONFIG: this.kubeconfig }, stdio: ['pipe', 'pipe', 'pipe'] });
  }

  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill(signal);
    await ended;
  }

  async remove(): Promise<void> {
    await this.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
