/** Runs `orchlet up` like a user, on the Docker daemon that `scripts/test` started, and kubectl. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { removeBoundAddresses } from './agent-leftovers.ts';
import { dockerSocket, imageArchive, containerdSocket } from './container-runtimes.ts';
import { freePort } from './free-port.ts';
import type { KubectlResult } from './kubectl.ts';
import { unmountBelow } from '../mounts.ts';
import { Ended, until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ROOT = join(import.meta.dirname, '../..');

export interface ClusterOptions {
  /** Adds files to the data directory before the start. */
  readonly prepare?: (directory: string) => void;
  /** The program to run instead of this checkout's. */
  readonly program?: string;
}

/** A cluster of one node that `orchlet up` runs. */
export class RunningCluster {
  readonly directory: string;
  readonly kubeconfig: string;
  readonly securePort: number;
  readonly agentPort: number;
  #child: ChildProcess | undefined;
  readonly #args: readonly string[];
  readonly #program: string;

  private constructor(
    directory: string,
    ports: readonly [number, number, number],
    runtime: readonly string[],
    more: readonly string[],
    program: string,
  ) {
    this.#program = program;
    this.directory = directory;
    this.kubeconfig = join(directory, 'admin.kubeconfig');
    [this.securePort, this.agentPort] = ports;
    this.#args = [
      ...[
        'up',
        '--data-dir',
        directory,
        '--secure-port',
        String(ports[0]),
        '--port',
        String(ports[1]),
        '--healthz-port',
        String(ports[2]),
      ],
      ...[
        '--agent-arg',
        'enable-pod-manifests-handler=true',
        '--read-only-port',
        '0',
        '--pod-logs-dir',
        join(directory, 'logs'),
        ...runtime,
        ...more,
      ],
    ];
  }

  /** Resolves when the node is Ready. */
  static async start(
    more: readonly string[] = [],
    on: 'docker' | 'containerd' = 'docker',
    { prepare = () => undefined, program = join(ROOT, 'bin/orchlet') }: ClusterOptions = {},
  ): Promise<RunningCluster> {
    const directory = temporaryFolder('orcc');
    mkdirSync(join(directory, 'images'));
    prepare(directory);
    copyFileSync(imageArchive ?? '', join(directory, 'images', 'images.tar'));
    const runtime =
      on === 'docker'
        ? ['--docker-endpoint', `unix://${dockerSocket ?? ''}`]
        : ['--container-runtime-endpoint', `unix://${containerdSocket ?? ''}`];
    const ports = [await freePort(), await freePort(), await freePort()] as const;
    const cluster = new RunningCluster(directory, ports, runtime, more, program);
    try {
      await cluster.launch();
    } catch (error) {
      await cluster.remove();
      throw error;
    }
    return cluster;
  }

  async launch(): Promise<void> {
    const child = spawn(this.#program, this.#args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    let log = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        log = (log + chunk.toString()).slice(-20_000);
      });
    }
    await until('a Ready node', () => {
      if (child.exitCode !== null) throw new Ended(`orchlet ended:\n${log}`);
      if (!existsSync(this.kubeconfig)) return undefined;
      const nodes = this.kubectl([
        'get',
        'nodes',
        '-o',
        'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}',
      ]);
      return nodes.stdout === 'True' ? true : undefined;
    }).catch((error: unknown) => {
      throw new Error(`the cluster did not start:\n${log}`, { cause: error });
    });
  }

  /** Runs kubectl and blocks. `path` selects another kubectl than the one on PATH. */
  kubectl(
    args: readonly string[],
    options: { readonly input?: string; readonly path?: string; readonly timeoutMs?: number } = {},
  ): KubectlResult {
    const done = spawnSync(options.path ?? 'kubectl', args, {
      encoding: 'utf8',
      env: { ...process.env, KUBECONFIG: this.kubeconfig, KUBECACHEDIR: join(this.directory, 'kubecache') },
      timeout: options.timeoutMs ?? 60_000,
      ...(options.input === undefined ? {} : { input: options.input }),
    });
    return { code: done.status, stdout: done.stdout ?? '', stderr: done.stderr ?? '' };
  }

  /** Runs kubectl like `kubectl`, but throws an error with its output if it fails. */
  run(args: readonly string[], options: Parameters<RunningCluster['kubectl']>[1] = {}): string {
    const done = this.kubectl(args, options);
    if (done.code !== 0)
      throw new Error(`kubectl ${args.join(' ')} ended with ${done.code}: ${done.stderr}${done.stdout}`);
    return done.stdout;
  }

  spawn(args: readonly string[], path = 'kubectl'): ChildProcess {
    return spawn(path, args, { env: { ...process.env, KUBECONFIG: this.kubeconfig }, stdio: ['pipe', 'pipe', 'pipe'] });
  }

  /** Stops the process and waits for its end. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill(signal);
    await ended;
  }

  async remove(): Promise<void> {
    await this.stop();
    // A cluster that stops by itself removes its pods and these rules. One that was killed does not.
    await removeBoundAddresses(join(this.directory, 'agent'));
    unmountBelow(this.directory);
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Returns a program's output. Throws an error with the output if the program fails. */
export function run(program: string, args: readonly string[]): string {
  const done = spawnSync(program, args, { encoding: 'utf8' });
  if (done.status !== 0)
    throw new Error(`${program} ${args.join(' ')} ended with ${done.status}: ${done.stderr}${done.stdout}`);
  return done.stdout;
}
