/**
 * Holds all pods together to what is allocatable, and, where they are named, the cgroups of the agent and the system to what
 * is reserved for them; keeps the shares of the QoS classes in step with what their pods request. Where cgroups cannot be
 * written it is said once, and nothing is held.
 */
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../api/component/logger.ts';
import type { Pod } from '../core-types.ts';
import { cpuShares, milliOf, podResources, qosClass, requestsOf } from '../kuberuntime/resources.ts';
import { cgroupPath } from './cgroup-path.ts';
import { cgroupName, handDownControllers } from './pod-cgroups.ts';

export interface CgroupLimits {
  /** 0: none. */
  readonly milliCpu: number;
  readonly memoryBytes: number;
  readonly pids: number;
}

export interface NodeAllocatableOptions {
  readonly driver: 'cgroupfs' | 'systemd';
  readonly root: string;
  readonly mountPoint: string;
  readonly version: 1 | 2;
  readonly logger: Logger;
}

export class NodeAllocatable {
  readonly #options: NodeAllocatableOptions;
  readonly #written = new Map<string, string>();
  #warned = false;

  constructor(options: NodeAllocatableOptions) {
    this.#options = options;
  }

  /** The cgroup of all pods. */
  get podsCgroup(): string {
    return cgroupName(['kubepods'], this.#options);
  }

  async enforcePods(limits: CgroupLimits): Promise<void> {
    const path = cgroupPath(this.podsCgroup);
    if (this.#options.version === 2)
      await handDownControllers(this.#options.mountPoint, path).catch((error: unknown) => this.#warn(error));
    await this.#hold(path, limits);
  }

  /** `--kube-reserved-cgroup`, `--system-reserved-cgroup`: whoever wants them held has made them. */
  async enforce(name: string, limits: CgroupLimits): Promise<void> {
    const path = cgroupPath(name);
    const controller = this.#options.version === 2 ? '' : limits.milliCpu > 0 ? 'cpu' : 'memory';
    if (existsSync(join(this.#options.mountPoint, controller, path))) await this.#hold(path, limits);
    else this.#warn(new Error(`${JSON.stringify(name)} cgroup does not exist`));
  }

  async #hold(path: string, limits: CgroupLimits): Promise<void> {
    const shares = cpuShares(limits.milliCpu);
    if (this.#options.version === 2) {
      if (limits.milliCpu > 0)
        await this.#write('', path, 'cpu.weight', String(Math.floor(1 + ((shares - 2) * 9999) / 262_142)));
      if (limits.memoryBytes > 0) await this.#write('', path, 'memory.max', String(limits.memoryBytes));
      if (limits.pids > 0) await this.#write('', path, 'pids.max', String(limits.pids));
      return;
    }
    if (limits.milliCpu > 0) await this.#write('cpu', path, 'cpu.shares', String(shares));
    if (limits.memoryBytes > 0) await this.#write('memory', path, 'memory.limit_in_bytes', String(limits.memoryBytes));
    if (limits.pids > 0) await this.#write('pids', path, 'pids.max', String(limits.pids));
  }

  /** Burstable pods have as much weight as they request together, those without requests the least. */
  async updateQosShares(pods: readonly Pod[]): Promise<void> {
    const burstable = pods
      .filter((pod) => qosClass(pod) === 'Burstable')
      .reduce((sum, pod) => sum + milliOf(podResources(pod, requestsOf)['cpu']), 0);
    for (const [qos, milliCpu] of [
      ['burstable', burstable],
      ['besteffort', 0],
    ] as const) {
      const shares = cpuShares(milliCpu);
      const path = cgroupPath(cgroupName(['kubepods', qos], this.#options));
      if (this.#options.version === 2)
        await this.#write('', path, 'cpu.weight', String(Math.floor(1 + ((shares - 2) * 9999) / 262_142)));
      else await this.#write('cpu', path, 'cpu.shares', String(shares));
    }
  }

  async #write(controller: string, path: string, file: string, value: string): Promise<void> {
    const directory = join(this.#options.mountPoint, controller, path);
    const target = join(directory, file);
    if (this.#written.get(target) === value) return;
    try {
      await mkdir(directory, { recursive: true });
      if ((await readFile(target, 'utf8')).trim() !== value) await writeFile(target, value);
      this.#written.set(target, value);
    } catch (error) {
      this.#warn(error);
    }
  }

  #warn(error: unknown): void {
    if (this.#warned) return;
    this.#warned = true;
    this.#options.logger.warn(
      { error },
      'Cgroups cannot be written here: not everything is held to what is allocatable or reserved',
    );
  }
}
