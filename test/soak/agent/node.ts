/** Runs the tested agent: a process that is killed and restarted with the same directories on a private runtime. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { join } from 'node:path';
import { startCriRuntime } from '../../../agent/runtime/cri/cri-runtime.ts';
import { startDockerRuntime } from '../../../agent/runtime/docker/docker-runtime.ts';
import type { Runtime } from '../../../agent/runtime/runtime.ts';
import { silentLogger } from '../../../api/component/logger.ts';
import { systemClock } from '../../../api/machinery/clock.ts';
import { freePort } from '../../integration/free-port.ts';
import { until } from '../../until.ts';

const ROOT = join(import.meta.dirname, '../../..');
const HOOK = join(import.meta.dirname, 'death-hook.ts');
const LOG_BYTES = 20_000;

export type RuntimeName = 'docker' | 'containerd';

export interface Death {
  /** `<moment> <step>` of the death hook. */
  readonly point: string;
  /** The occurrence of the point at which the process is killed. */
  readonly turn: number;
}

export interface SoakNodeOptions {
  readonly on: RuntimeName;
  /** The path of the runtime's socket. */
  readonly socket: string;
  readonly images: string;
  /** The directory with all files of this node. */
  readonly directory: string;
  readonly kubeconfig: string;
}

/** The tested agent with its directories and its runtime. */
export class SoakNode {
  readonly name: string;
  readonly root: string;
  readonly manifests: string;
  readonly records: string;
  readonly logs: string;
  readonly cgroup: string;
  readonly #options: SoakNodeOptions;
  readonly #ports: readonly [server: number, health: number];
  readonly #trace: string;
  #child: ChildProcess | undefined;
  #log = '';
  /** The messages of exits that the test did not cause. */
  readonly crashes: string[] = [];

  private constructor(options: SoakNodeOptions, ports: readonly [server: number, health: number]) {
    const { directory } = options;
    this.#options = options;
    this.#ports = ports;
    this.name = `soak-${options.on}-${process.pid}`;
    this.cgroup = `/${this.name}`;
    this.root = join(directory, 'root');
    this.manifests = join(directory, 'manifests');
    this.records = join(directory, 'records');
    this.logs = join(directory, 'logs');
    this.#trace = join(directory, 'trace');
  }

  static async prepare(options: SoakNodeOptions): Promise<SoakNode> {
    const node = new SoakNode(options, [await freePort(), await freePort()]);
    const { directory, images } = options;
    for (const one of [node.manifests, node.records, join(directory, 'images')]) mkdirSync(one, { recursive: true });
    copyFileSync(images, join(directory, 'images', 'images.tar'));
    writeFileSync(node.#trace, '');
    const config = {
      apiVersion: 'kubelet.config.k8s.io/v1beta1',
      kind: 'KubeletConfiguration',
      staticPodPath: node.manifests,
      fileCheckFrequency: '1s',
      failSwapOn: false,
      featureGates: { KubeletCrashLoopBackOffMax: true },
      crashLoopBackOff: { maxContainerRestartPeriod: '1s' },
    };
    writeFileSync(join(directory, 'config.json'), JSON.stringify(config));
    return node;
  }

  get log(): string {
    return this.#log;
  }

  get isAlive(): boolean {
    const child = this.#child;
    return child !== undefined && child.exitCode === null && child.signalCode === null;
  }

  /** Starts the agent, which kills itself at the given step. */
  launch(death: Death | undefined): void {
    const { on, socket, directory, kubeconfig } = this.#options;
    const runtime =
      on === 'docker'
        ? ['--container-runtime', 'docker', '--docker-endpoint', `unix://${socket}`]
        : ['--container-runtime-endpoint', `unix://${socket}`];
    const flags = [
      ...['--hostname-override', this.name, '--root-dir', this.root, '--pod-logs-dir', this.logs],
      ...['--images-dir', join(directory, 'images'), '--pod-infra-container-image', 'orchlet.local/pause:1'],
      ...['--config', join(directory, 'config.json'), '--kubeconfig', kubeconfig, '--cgroup-root', this.cgroup],
      ...['--port', String(this.#ports[0]), '--healthz-port', String(this.#ports[1]), '--read-only-port', '0'],
      ...['--serve-cluster-dns=false', '--service-proxy=none', ...runtime],
    ];
    const child = spawn(join(ROOT, 'bin/orchlet'), ['agent', ...flags], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...process.env,
        NODE_OPTIONS: `--import=${HOOK}`,
        SOAK_TRACE: this.#trace,
        SOAK_DEATH: death?.point ?? '',
        SOAK_DEATH_TURN: String(death?.turn ?? 1),
      },
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => (this.#log = (this.#log + chunk.toString()).slice(-LOG_BYTES)));
    child.on('exit', (code, signal) => {
      this.#log += `\n--- exit ${code} ${signal}\n`;
      if (signal !== 'SIGKILL' && signal !== 'SIGTERM')
        this.crashes.push(`the agent exited with code ${code}, signal ${signal}:\n${this.#log.slice(-3000)}`);
    });
  }

  /** Resolves to whether the process responds on its health port. */
  async isUp(): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const asked = get({ host: '127.0.0.1', port: this.#ports[1], path: '/healthz', timeout: 1000 }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    asked.on('timeout', () => asked.destroy());
    asked.on('error', () => resolve(false));
    asked.on('close', () => resolve(false));
    return promise;
  }

  async stop(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === undefined || !this.isAlive) return;
    const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill(signal);
    await exited;
  }

  /**
   * Returns the points that were reached with the number of lives that reached them, and the points at which the process was
   * killed.
   */
  points(): { readonly reached: ReadonlyMap<string, number>; readonly deaths: readonly string[] } {
    const lines = readFileSync(this.#trace, 'utf8').split('\n');
    const deaths = lines.filter((line) => line.startsWith('killed ')).map((line) => line.slice('killed '.length));
    const reached = new Map<string, number>();
    for (const line of lines)
      if (line !== '' && !line.startsWith('killed ')) reached.set(line, (reached.get(line) ?? 0) + 1);
    return { reached, deaths };
  }

  /** Opens the runtime like this agent. */
  openRuntime(): Promise<Runtime> {
    const { on, socket } = this.#options;
    const shared = { endpoint: `unix://${socket}`, clock: systemClock, logger: silentLogger };
    return on === 'docker'
      ? startDockerRuntime({ nodeName: this.name, rootDirectory: this.root, sandboxImage: '', ...shared })
      : startCriRuntime(shared);
  }

  /** Stops the agent, and removes all pods and cgroups. The caller removes the directory. */
  async remove(runtime: Runtime): Promise<void> {
    await this.stop('SIGKILL');
    await until('the end of all pods', async () => {
      const sandboxes = await runtime.listSandboxes();
      for (const { id } of sandboxes) {
        await runtime.stopSandbox(id);
        await runtime.removeSandbox(id);
      }
      return sandboxes.length === 0;
    });
    for (const directory of this.cgroupDirectories()) spawnSync('find', [directory, '-depth', '-type', 'd', '-delete']);
  }

  /** Returns the directories of the node's cgroups in each hierarchy. */
  cgroupDirectories(): string[] {
    const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
    const points = mounts.filter((line) => / - cgroup2? /.test(line)).map((line) => line.split(' ')[4] ?? '');
    return points.map((point) => join(point, this.cgroup)).filter((path) => existsSync(path));
  }
}
