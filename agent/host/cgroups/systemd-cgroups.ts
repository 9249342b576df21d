/**
 * Manages cgroups as transient slices of systemd, with limits as properties of the units, because systemd reverts other
 * changes to its cgroups. Limits without a systemd property (huge pages) are written to the kernel's files.
 *
 * If a call fails, the kernel's files are written instead, and the first failure is logged.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from '../../../api/component/logger.ts';
import { SerialQueue } from '../../../api/machinery/serial-queue.ts';
import { cgroupName, cgroupPath, unitOf } from './cgroup-path.ts';
import { type CgroupManager, type CgroupResources, cpuWeight } from './cgroup-resources.ts';
import type { FileCgroups } from './file-cgroups.ts';

/** Runs `busctl` with these arguments. Rejects with its error output if it fails. */
export type Busctl = (args: readonly string[]) => Promise<void>;

/** A property with its type, in the form of `busctl`'s arguments. */
type Property = readonly [name: string, signature: 'b' | 's' | 't', value: string];

const MANAGER = ['org.freedesktop.systemd1', '/org/freedesktop/systemd1', 'org.freedesktop.systemd1.Manager'];
/** The maximum time of one call of `busctl`. */
const TIMEOUT_MS = 10_000;
/** The value for no limit, whatever the unit of the property. */
const INFINITY = '18446744073709551615';
/** The kernel's default period of a CPU quota, in microseconds. */
const DEFAULT_PERIOD_US = 100_000;
/** The granularity of systemd's CPU quota: one percent of a CPU, in microseconds. */
const QUOTA_STEP_US = 10_000;

/** Runs `busctl` of the host for at most the timeout, and rejects with what it wrote to standard error. */
export const hostBusctl: Busctl = (args) =>
  new Promise((resolve, reject) => {
    execFile('busctl', [...args], { timeout: TIMEOUT_MS }, (error, _stdout, stderr) => {
      if (error === null) resolve();
      else reject(new Error(stderr.trim() || error.message));
    });
  });

interface SystemdCgroupsOptions {
  readonly root: string;
  readonly version: 1 | 2;
  readonly files: FileCgroups;
  readonly busctl: Busctl;
  readonly logger: Logger;
}

/** The cgroup driver `systemd`. Names end in `.slice`. */
export class SystemdCgroups implements CgroupManager {
  readonly #options: SystemdCgroupsOptions;
  /** The resources that were last set on each unit, as JSON. */
  readonly #applied = new Map<string, string>();
  /** Changes of units must not overlap. */
  readonly #changes = new SerialQueue();
  #warned = false;

  constructor(options: SystemdCgroupsOptions) {
    this.#options = options;
  }

  name(parts: readonly string[]): string {
    return cgroupName(parts, { driver: 'systemd', root: this.#options.root });
  }

  set(name: string, resources: CgroupResources): Promise<void> {
    return this.#changes.run(async () => {
      const { files, version } = this.#options;
      const properties = propertiesOf(resources, version);
      const key = JSON.stringify(resources);
      const applied = this.#exists(cgroupPath(name)) ? this.#applied.get(name) : undefined;
      if (applied === key) return;
      try {
        if (applied === undefined) await this.#start(name, properties);
        else await this.#change(name, properties);
        this.#applied.set(name, key);
      } catch (error) {
        this.#warn(error);
        this.#applied.delete(name);
        await files.set(name, resources);
        return;
      }
      if (resources.hugePages !== undefined) await files.set(name, { hugePages: resources.hugePages });
    });
  }

  update(name: string, resources: CgroupResources): Promise<boolean> {
    return this.#changes.run(async () => {
      const { files, version } = this.#options;
      const unit = unitOf(name);
      const path = [name, unit].map(cgroupPath).find((place) => this.#exists(place));
      if (path === undefined) return false;
      const key = JSON.stringify(resources);
      if (this.#applied.get(unit) === key) return true;
      try {
        await this.#change(unit, propertiesOf(resources, version));
        this.#applied.set(unit, key);
        return true;
      } catch (error) {
        this.#warn(error);
        this.#applied.delete(unit);
        return files.update(path, resources);
      }
    });
  }

  remove(name: string): Promise<void> {
    return this.#changes.run(async () => {
      const { files } = this.#options;
      // Stopping a slice kills all processes in it.
      if (await files.isUsed(name)) return;
      if (this.#applied.delete(name) || this.#exists(cgroupPath(name)))
        await this.#call('StopUnit', 'ss', [name, 'replace']).catch((error: unknown) => this.#warn(error));
      // Runtimes create their own directories in the hierarchies of v1 that systemd leaves alone.
      await files.remove(name);
    });
  }

  async children(name: string): Promise<readonly string[]> {
    const paths = await this.#options.files.children(name);
    return paths.map((path) => path.slice(path.lastIndexOf('/') + 1)).filter((child) => child.endsWith('.slice'));
  }

  isUsed(name: string): Promise<boolean> {
    return this.#options.files.isUsed(name);
  }

  async #start(name: string, properties: readonly Property[]): Promise<void> {
    const all: readonly Property[] = [
      ['Description', 's', `Pods of Kubernetes: ${name}`],
      // When the host shuts down, pods terminate in their order, and not with their slice.
      ['DefaultDependencies', 'b', 'false'],
      ['CPUAccounting', 'b', 'true'],
      ['MemoryAccounting', 'b', 'true'],
      ['TasksAccounting', 'b', 'true'],
      ...(this.#options.version === 2 ? [['IOAccounting', 'b', 'true'] as const] : []),
      ...properties,
    ];
    try {
      await this.#call('StartTransientUnit', 'ssa(sv)a(sa(sv))', [name, 'replace', ...counted(all), '0']);
    } catch (error) {
      if (!(error instanceof Error && /was already loaded|already exists/.test(error.message))) throw error;
      // An earlier agent or the administrator of the host created the unit, which may be stopped.
      await this.#change(name, properties);
      await this.#call('StartUnit', 'ss', [name, 'replace']);
    }
  }

  /** Changes the unit until the host shuts down. The administrator's files stay unchanged. */
  #change(unit: string, properties: readonly Property[]): Promise<void> {
    return this.#call('SetUnitProperties', 'sba(sv)', [unit, 'true', ...counted(properties)]);
  }

  #call(method: string, signature: string, args: readonly string[]): Promise<void> {
    return this.#options.busctl(['--system', '--quiet', 'call', ...MANAGER, method, signature, ...args]);
  }

  /**
   * Returns whether the slice exists. On v1 it reads systemd's own hierarchy, because directories of runtimes remain in the
   * others.
   */
  #exists(path: string): boolean {
    const bases = this.#options.files.bases();
    const systemdBases = bases.filter((base) => base.endsWith('/systemd'));
    return (systemdBases.length > 0 ? systemdBases : bases).some((base) => existsSync(join(base, path)));
  }

  #warn(error: unknown): void {
    if (this.#warned) return;
    this.#warned = true;
    this.#options.logger.warn(
      { err: error },
      'Cannot manage slices through systemd (busctl over the system bus), writing cgroup files, which systemd may revert',
    );
  }
}

function counted(properties: readonly Property[]): readonly string[] {
  return [String(properties.length), ...properties.flat()];
}

function propertiesOf(resources: CgroupResources, version: 1 | 2): readonly Property[] {
  const { cpuShares, cpuQuota, memoryBytes, pids } = resources;
  const limit = (value: number): string => (value === 0 ? INFINITY : String(value));
  const properties: Property[] = [];
  if (cpuShares !== undefined)
    properties.push(
      version === 2 ? ['CPUWeight', 't', String(cpuWeight(cpuShares))] : ['CPUShares', 't', String(cpuShares)],
    );
  if (cpuQuota !== undefined) {
    const { quotaUs, periodUs } = cpuQuota;
    // The quota is rounded up, so that containers get at least their share.
    const perSecondUs = Math.ceil((quotaUs * 1_000_000) / periodUs / QUOTA_STEP_US) * QUOTA_STEP_US;
    if (periodUs !== DEFAULT_PERIOD_US) properties.push(['CPUQuotaPeriodUSec', 't', String(periodUs)]);
    properties.push(['CPUQuotaPerSecUSec', 't', limit(perSecondUs)]);
  }
  if (memoryBytes !== undefined)
    properties.push([version === 2 ? 'MemoryMax' : 'MemoryLimit', 't', limit(memoryBytes)]);
  if (pids !== undefined) properties.push(['TasksMax', 't', limit(pids)]);
  return properties;
}
