/**
 * Owns the allocations of memory and huge pages of each NUMA node. The state is stored in `memory_manager_state` in the
 * kubelet's format and with its checksum.
 */
import { join } from 'node:path';
import {
  fnv32a,
  goMap,
  goSlice,
  goStruct,
  restoreStateFile,
  type StateOptions,
  StateWriter,
} from '../checkpoint-file.ts';
import { ContainerTable } from '../container-table.ts';
import { quoteText } from '../../../../api/meta/quote.ts';

const FILE = 'memory_manager_state';

/** The bytes of one kind of memory on one NUMA node. What is allocated to containers moves from `free` to `reserved`. */
export interface MemoryTable {
  readonly total: number;
  readonly systemReserved: number;
  readonly allocatable: number;
  reserved: number;
  free: number;
}

interface NumaNodeState {
  numberOfAssignments: number;
  /** Memory by resource: `memory`, `hugepages-2Mi`. */
  readonly memoryMap: Record<string, MemoryTable>;
  /** The NUMA nodes that are allocated together as a group; only the node itself otherwise. */
  cells: readonly number[];
}

/** The memory of one container: bytes of a type (`memory`, `hugepages-2Mi`) on a group of NUMA nodes. */
export interface MemoryBlock {
  readonly numaAffinity: readonly number[];
  readonly type: string;
  readonly size: number;
}

/** The state of NUMA nodes by node id. */
export type MachineState = Record<string, NumaNodeState>;
type Entries = Readonly<Record<string, Readonly<Record<string, readonly MemoryBlock[]>>>>;

interface MemoryStateJson {
  readonly policyName: string;
  readonly machineState: MachineState;
  readonly entries?: Entries;
  readonly checksum: number;
}

/** The allocations of memory. `save` writes them; a write that fails leaves the last file and is tried again. */
export class MemoryState {
  readonly path: string;
  machine: MachineState = {};
  readonly #policy: string;
  readonly #writer: StateWriter;
  readonly #blocks = new ContainerTable<readonly MemoryBlock[]>();

  private constructor({ directory, policy, clock, logger }: StateOptions) {
    this.path = join(directory, FILE);
    this.#policy = policy;
    this.#writer = new StateWriter({ path: this.path, what: 'the state of the memory manager', clock, logger });
  }

  /** Throws `StateError` if the file belongs to another policy or is corrupted. */
  static async load(options: StateOptions): Promise<MemoryState> {
    const state = new MemoryState(options);
    await restoreStateFile(state.path, 'memory manager', (json) => state.#restore(json as MemoryStateJson));
    return state;
  }

  /** Returns the memory and huge pages that are allocated to the container, or `undefined` if it has none. */
  blocks(podUid: string, container: string): readonly MemoryBlock[] | undefined {
    return this.#blocks.get(podUid, container);
  }

  ofPod(podUid: string): ReadonlyMap<string, readonly MemoryBlock[]> {
    return this.#blocks.ofPod(podUid);
  }

  assign(podUid: string, container: string, blocks: readonly MemoryBlock[]): void {
    this.#blocks.set(podUid, container, blocks);
  }

  /** Forgets the blocks of a pod. `save` writes the change. */
  delete(podUid: string): void {
    this.#blocks.delete(podUid);
  }

  pods(): readonly string[] {
    return this.#blocks.pods();
  }

  /** Writes the state file. Resolves when it is on disk, or the attempt has failed. */
  save(): Promise<void> {
    return this.#writer.write(() => this.#json());
  }

  #json(): MemoryStateJson {
    const entries = this.#blocks.entries((blocks) => blocks);
    const json = { policyName: this.#policy, machineState: this.machine, entries };
    return {
      policyName: json.policyName,
      machineState: json.machineState,
      ...(Object.keys(entries).length === 0 ? {} : { entries }),
      checksum: memoryStateChecksum(json),
    };
  }

  #restore({ policyName, machineState, entries = {}, checksum }: MemoryStateJson): void {
    if (typeof policyName !== 'string' || typeof machineState !== 'object' || machineState === null)
      throw new Error('the file is not a memory manager state');
    if (checksum !== 0 && checksum !== memoryStateChecksum({ policyName, machineState, entries }))
      throw new Error('checkpoint is corrupted');
    if (policyName !== this.#policy)
      throw new Error(
        `[memorymanager] configured policy ${quoteText(this.#policy)} differs from state checkpoint policy ${quoteText(policyName)}`,
      );
    this.machine = machineState;
    for (const [pod, containers] of Object.entries(entries))
      for (const [container, blocks] of Object.entries(containers)) this.assign(pod, container, blocks);
  }
}

/** Computes the kubelet's checksum. */
export function memoryStateChecksum({
  policyName,
  machineState,
  entries = {},
}: Omit<MemoryStateJson, 'checksum'>): number {
  const table = ({ total, systemReserved, allocatable, reserved, free }: MemoryTable): string =>
    `<*>${goStruct([
      ['TotalMemSize', 'uint64', String(total)],
      ['SystemReserved', 'uint64', String(systemReserved)],
      ['Allocatable', 'uint64', String(allocatable)],
      ['Reserved', 'uint64', String(reserved)],
      ['Free', 'uint64', String(free)],
    ])}`;
  const node = ({ numberOfAssignments, memoryMap, cells }: NumaNodeState): string =>
    `<*>${goStruct([
      ['NumberOfAssignments', 'int', String(numberOfAssignments)],
      [
        'MemoryMap',
        'map[v1.ResourceName]*state.MemoryTable',
        goMap(Object.entries(memoryMap).map(([type, row]) => [type, table(row)])),
      ],
      ['Cells', '[]int', goSlice(cells)],
    ])}`;
  const block = ({ numaAffinity, type, size }: MemoryBlock): string =>
    goStruct([
      ['NUMAAffinity', '[]int', goSlice(numaAffinity)],
      ['Type', 'v1.ResourceName', type],
      ['Size', 'uint64', String(size)],
    ]);
  const containers = (list: Readonly<Record<string, readonly MemoryBlock[]>>): string =>
    goMap(Object.entries(list).map(([name, blocks]) => [name, goSlice(blocks.map(block))]));
  return fnv32a(
    `(*state.MemoryManagerCheckpoint)${goStruct([
      ['PolicyName', 'string', policyName],
      [
        'MachineState',
        'state.NUMANodeMap',
        goMap(Object.entries(machineState).map(([id, state]) => [Number(id), node(state)])),
      ],
      [
        'Entries',
        'state.ContainerMemoryAssignments',
        goMap(Object.entries(entries).map(([pod, list]) => [pod, containers(list)])),
      ],
      ['Checksum', 'checksum.Checksum', '0'],
    ])}`,
  );
}
