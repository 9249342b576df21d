/**
 * Owns the CPU allocations: the exclusive sets by pod and container, and the shared pool. The state is stored in
 * `cpu_manager_state` in the kubelet's format and with its checksum.
 */
import { join } from 'node:path';
import { fnv32a, goMap, goStruct, restoreStateFile, type StateOptions, StateWriter } from '../checkpoint-file.ts';
import { ContainerTable } from '../container-table.ts';
import { type CpuSet, formatCpuSet, NO_CPUS, parseCpuSet } from '../cpu-set.ts';
import { quoteText } from '../../../../api/meta/quote.ts';

const FILE = 'cpu_manager_state';

interface CpuStateJson {
  readonly policyName: string;
  readonly defaultCpuSet: string;
  readonly entries?: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly checksum: number;
}

/** The allocations in memory. `save` writes them. If it fails, the previous file stays. */
export class CpuState {
  readonly path: string;
  shared: CpuSet = NO_CPUS;
  readonly #policy: string;
  readonly #writer: StateWriter;
  readonly #assigned = new ContainerTable<CpuSet>();

  private constructor({ directory, policy, clock, logger }: StateOptions) {
    this.path = join(directory, FILE);
    this.#policy = policy;
    this.#writer = new StateWriter({ path: this.path, what: 'the state of the CPU manager', clock, logger });
  }

  /** Throws `StateError` if the file belongs to another policy or is corrupted. */
  static async load(options: StateOptions): Promise<CpuState> {
    const state = new CpuState(options);
    await restoreStateFile(state.path, 'CPU manager', (json) => state.#restore(json));
    return state;
  }

  /** Returns the CPUs that the container has exclusively, or `undefined` if it has none. */
  exclusive(podUid: string, container: string): CpuSet | undefined {
    return this.#assigned.get(podUid, container);
  }

  assign(podUid: string, container: string, cpus: CpuSet): void {
    this.#assigned.set(podUid, container, cpus);
  }

  /** Forgets the exclusive CPUs of a pod. `save` writes the change. */
  delete(podUid: string): void {
    this.#assigned.delete(podUid);
  }

  /** Returns the exclusive sets of a pod by container name. */
  ofPod(podUid: string): ReadonlyMap<string, CpuSet> {
    return this.#assigned.ofPod(podUid);
  }

  /** Returns the uids of the pods that have exclusive CPUs. */
  pods(): readonly string[] {
    return this.#assigned.pods();
  }

  /** Returns the CPUs that any container has exclusively. */
  allExclusive(): CpuSet {
    const exclusive = new Set<number>();
    for (const cpus of this.#assigned.values()) for (const cpu of cpus) exclusive.add(cpu);
    return exclusive;
  }

  /** Writes the state file. Resolves when it is on disk, or the attempt has failed. */
  save(): Promise<void> {
    return this.#writer.write(() => this.#json());
  }

  #json(): CpuStateJson {
    const entries = this.#assigned.entries(formatCpuSet);
    const json = { policyName: this.#policy, defaultCpuSet: formatCpuSet(this.shared), entries };
    return {
      policyName: json.policyName,
      defaultCpuSet: json.defaultCpuSet,
      ...(Object.keys(entries).length === 0 ? {} : { entries }),
      checksum: cpuStateChecksum(json),
    };
  }

  #restore(json: unknown): void {
    const { policyName, defaultCpuSet, entries = {}, checksum } = readCpuState(json);
    // Kubelet releases that had no checksum wrote zero.
    if (checksum !== 0 && checksum !== cpuStateChecksum({ policyName, defaultCpuSet, entries }))
      throw new Error('checkpoint is corrupted');
    if (policyName !== this.#policy)
      throw new Error(
        `configured policy ${quoteText(this.#policy)} differs from state checkpoint policy ${quoteText(policyName)}`,
      );
    this.shared = parseCpuSet(defaultCpuSet);
    for (const [pod, containers] of Object.entries(entries))
      for (const [container, cpus] of Object.entries(containers)) this.assign(pod, container, parseCpuSet(cpus));
  }
}

function readCpuState(json: unknown): CpuStateJson {
  const value = json as Partial<CpuStateJson> | null;
  if (
    typeof value !== 'object' ||
    value === null ||
    typeof value.policyName !== 'string' ||
    typeof value.defaultCpuSet !== 'string' ||
    Object.values(value.entries ?? {}).some((containers) =>
      Object.values(containers).some((cpus) => typeof cpus !== 'string'),
    )
  )
    throw new Error('the file is not a CPU manager state');
  return {
    policyName: value.policyName,
    defaultCpuSet: value.defaultCpuSet,
    ...(value.entries === undefined ? {} : { entries: value.entries }),
    checksum: value.checksum ?? 0,
  };
}

/** Computes the kubelet's checksum of the second version of the file format. */
export function cpuStateChecksum({ policyName, defaultCpuSet, entries = {} }: Omit<CpuStateJson, 'checksum'>): number {
  const containers = Object.entries(entries).map(([pod, sets]) => [pod, goMap(Object.entries(sets))] as const);
  return fnv32a(
    `(*state.CPUManagerCheckpoint)${goStruct([
      ['PolicyName', 'string', policyName],
      ['DefaultCPUSet', 'string', defaultCpuSet],
      ['Entries', 'map[string]map[string]string', goMap(containers)],
      ['Checksum', 'checksum.Checksum', '0'],
    ])}`,
  );
}
