/** Runs `orchlet agent` as a separate process on a real container runtime. Tests kill it and inspect the runtime. */
import { type ChildProcess, spawn } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { startCriRuntime } from '../../agent/runtime/cri/cri-runtime.ts';
import { startDockerRuntime } from '../../agent/runtime/docker/docker-runtime.ts';
import type { Runtime } from '../../agent/runtime/runtime.ts';
import { silentLogger } from '../../api/component/logger.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { removeBoundAddresses } from './agent-leftovers.ts';
import { containerdSocket, dockerSocket, imageArchive } from './container-runtimes.ts';
import { freePort } from './free-port.ts';
import { unmountBelow } from '../mounts.ts';
import { run } from './running-cluster.ts';
import { Ended, until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');

export type RuntimeName = 'docker' | 'containerd';

/** Kills the tests' own daemon and restarts it. Its containers keep running. `between` runs while the daemon is down. */
export async function restartRuntime(on: RuntimeName, between: () => Promise<void>): Promise<void> {
  const directory = dirname((on === 'docker' ? dockerSocket : containerdSocket) ?? '');
  const pid = Number(readFileSync(join(directory, `${on}.pid`), 'utf8'));
  const isAlive = (): boolean =>
    existsSync(`/proc/${pid}`) && !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  process.kill(pid, 'SIGKILL');
  await until('the end of the daemon', () => (isAlive() ? undefined : true));
  // If nothing reaps dead processes, their ids would look as if they were in use.
  for (const left of [`${on}.pid`, 'exec/containerd/containerd.pid']) rmSync(join(directory, left), { force: true });
  try {
    await between();
  } finally {
    run(join(import.meta.dirname, '../../scripts', `${on}-private`), ['start', directory]);
  }
}

/** An agent that a test starts, kills and starts again. */
export class AgentProcess {
  readonly directory: string;
  readonly rootDirectory: string;
  readonly nodeName: string;
  readonly #ports: readonly [server: number, health: number];
  readonly #on: RuntimeName;
  readonly #flags: readonly string[];
  #child: ChildProcess | undefined;
  #log = '';

  private constructor(
    on: RuntimeName,
    directory: string,
    ports: readonly [server: number, health: number],
    flags: readonly string[],
  ) {
    this.#on = on;
    this.directory = directory;
    this.rootDirectory = join(directory, 'root');
    this.nodeName = `node-${on}-${process.pid}`;
    this.#ports = ports;
    this.#flags = flags;
  }

  /** Prepares the agent without starting it. */
  static async prepare(on: RuntimeName, flags: readonly string[]): Promise<AgentProcess> {
    const directory = temporaryFolder('orca');
    mkdirSync(join(directory, 'images'));
    copyFileSync(imageArchive ?? '', join(directory, 'images', 'images.tar'));
    return new AgentProcess(on, directory, [await freePort(), await freePort()], flags);
  }

  /** Starts the agent. The state of an earlier run is still in its directories. */
  launch(): void {
    const runtime =
      this.#on === 'docker'
        ? ['--container-runtime', 'docker', '--docker-endpoint', `unix://${dockerSocket ?? ''}`]
        : ['--container-runtime-endpoint', `unix://${containerdSocket ?? ''}`];
    const child = spawn(
      ORCHLET,
      [
        ...['agent', '--hostname-override', this.nodeName, '--root-dir', this.rootDirectory],
        ...['--pod-logs-dir', join(this.directory, 'logs'), '--images-dir', join(this.directory, 'images')],
        ...['--pod-infra-container-image', 'orchlet.local/pause:1', '--read-only-port', '0'],
        ...['--port', String(this.#ports[0]), '--healthz-port', String(this.#ports[1]), '--fail-swap-on=false'],
        ...[...runtime, ...this.#flags],
      ],
      { stdio: ['ignore', 'pipe', 'pipe'] },
    );
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        this.#log = (this.#log + chunk.toString()).slice(-20_000);
      });
    }
  }

  /** The logs of all launches, or their end. */
  get log(): string {
    return this.#log;
  }

  /** Throws an error with the last output if the process has exited by itself. */
  assertAlive(): void {
    if (this.#child?.exitCode !== null) throw new Ended(`the agent ended:\n${this.#log}`);
  }

  async stop(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill(signal);
    await ended;
  }

  /** Opens the runtime like this agent. */
  openRuntime(): Promise<Runtime> {
    const shared = { clock: systemClock, logger: silentLogger };
    return this.#on === 'docker'
      ? startDockerRuntime({
          endpoint: `unix://${dockerSocket ?? ''}`,
          nodeName: this.nodeName,
          rootDirectory: this.rootDirectory,
          sandboxImage: '',
          ...shared,
        })
      : startCriRuntime({ endpoint: `unix://${containerdSocket ?? ''}`, ...shared });
  }

  /** Simulates a power loss of the host: no process of the agent or its pods remains, and nothing in memory. */
  async cutPower(): Promise<void> {
    await this.stop('SIGKILL');
    await this.#removePods();
    unmountBelow(this.directory);
  }

  async remove(): Promise<void> {
    await this.stop('SIGTERM');
    await this.#removePods();
    await removeBoundAddresses(this.rootDirectory);
    unmountBelow(this.directory);
    rmSync(this.directory, { recursive: true, force: true });
  }

  async #removePods(): Promise<void> {
    const runtime = await this.openRuntime();
    try {
      await until('the end of all pods', async () => {
        const sandboxes = await runtime.listSandboxes();
        for (const { id } of sandboxes) {
          await runtime.stopSandbox(id);
          await runtime.removeSandbox(id);
        }
        return sandboxes.length === 0 ? true : undefined;
      });
    } finally {
      await runtime.close();
    }
  }
}
