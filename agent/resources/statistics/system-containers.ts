/**
 * Reads the usage of the agent itself and of the container runtime, which the summary shows as system containers. A process in
 * the root cgroup is left out, because the usage of that cgroup is the whole host's.
 */
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../../api/machinery/clock.ts';
import { cgroupPath } from '../../host/cgroups/cgroup-path.ts';
import type { CgroupReader, CgroupUsage } from './cgroup-usage.ts';
import { type CpuSample, nextCpuSample } from './cpu-rate.ts';

/** The cgroup of a system process. `nanoCores` is undefined until there are two measurements. */
export interface SystemContainer {
  readonly name: 'kubelet' | 'runtime';
  readonly usage: CgroupUsage;
  readonly createdAtMs: number | undefined;
  readonly nanoCores: number | undefined;
}

interface SystemContainersOptions {
  readonly reader: CgroupReader;
  readonly clock: Clock;
  /** `--runtime-cgroups`; empty if it is not known. */
  readonly runtimeCgroup: string;
  /** `/proc/self/cgroup` by default. */
  readonly ownCgroupFile?: string;
}

/** Finds the cgroups of the two processes and measures them. */
export class SystemContainers {
  readonly #options: SystemContainersOptions;
  readonly #samples = new Map<string, CpuSample>();

  constructor(options: SystemContainersOptions) {
    this.#options = options;
  }

  /**
   * Returns the usage of the agent (`kubelet`) and of the container runtime (`runtime`), each if it has a cgroup of its own.
   */
  async usage(): Promise<readonly SystemContainer[]> {
    const { reader, clock, runtimeCgroup, ownCgroupFile = '/proc/self/cgroup' } = this.#options;
    // A host without cgroups has no such file.
    const agentCgroup = ownCgroup(await readFile(ownCgroupFile, 'utf8').catch(() => ''));
    const found: SystemContainer[] = [];
    for (const [name, cgroup] of [
      ['kubelet', agentCgroup],
      ['runtime', runtimeCgroup === '' ? '' : cgroupPath(runtimeCgroup)],
    ] as const) {
      const usage = cgroup === '' || cgroup === '/' ? undefined : await reader.read(cgroup);
      if (usage === undefined) continue;
      const sample = nextCpuSample(this.#samples.get(name), usage.cpu.usageNs, clock.monotonic());
      this.#samples.set(name, sample);
      found.push({ name, usage, createdAtMs: await reader.createdAtMs(cgroup), nanoCores: sample.nanoCores });
    }
    return found;
  }
}

/**
 * Returns the cgroup of a process from its `/proc/PID/cgroup`: with cgroups v1, the one that the controllers of CPU and memory
 * share, otherwise that of v2. Returns '' if the controllers differ, if there is no cgroup, or if the cgroup is outside of this
 * cgroup namespace.
 */
export function ownCgroup(text: string): string {
  const paths = new Map<string, string>();
  for (const [, controllers = '', path = ''] of text.matchAll(/^\d+:([^:\n]*):(.*)$/gm))
    for (const controller of controllers.split(',')) paths.set(controller, path);
  const memory = paths.get('memory');
  const path = memory === undefined ? paths.get('') : memory === paths.get('cpu') ? memory : undefined;
  return path === undefined || path.startsWith('/..') ? '' : path;
}
