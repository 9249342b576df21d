/** Creates a host's `/sys/devices/system` as files from a short description: sockets, NUMA nodes, cores, threads and memory. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type HostTopology, readHostTopology } from '../../agent/resources/managers/topology/host-topology.ts';
import { temporaryFolder } from '../temporary-folder.ts';

export interface Machine {
  readonly sockets: number;
  readonly nodesPerSocket?: number;
  readonly coresPerNode: number;
  /** The threads per core. With 2, the threads of a core are numbered `n` and `n + cores of the host`, as by most firmware. */
  readonly threads?: number;
  readonly coresPerCache?: number;
  readonly memoryPerNodeBytes?: number;
  /** The number of huge pages of 2 MiB per NUMA node. */
  readonly hugePages?: number;
  /** The distances between nodes of one socket, and of different sockets. */
  readonly distances?: readonly [near: number, far: number];
  readonly offline?: readonly number[];
  /** Whether the kernel reports no NUMA nodes. */
  readonly withoutNuma?: boolean;
}

/** Returns the root of the tree, which is two directories below a new temporary directory. */
export async function sysfsTree(machine: Machine): Promise<string> {
  const { sockets, nodesPerSocket = 1, coresPerNode, threads = 1, coresPerCache = coresPerNode } = machine;
  const root = join(temporaryFolder(), 'devices', 'system');
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), `${text}\n`);
  };
  const nodes = sockets * nodesPerSocket;
  const cores = nodes * coresPerNode;
  const siblings = (core: number): number[] => Array.from({ length: threads }, (_, thread) => core + thread * cores);
  const offline = new Set(machine.offline);
  const all = Array.from({ length: cores * threads }, (_, cpu) => cpu);
  write('cpu/online', all.filter((cpu) => !offline.has(cpu)).join(','));
  for (const cpu of all) {
    const core = cpu % cores;
    const node = Math.floor(core / coresPerNode);
    const cache = Math.floor(core / coresPerCache);
    const inCache = Array.from({ length: coresPerCache }, (_, index) => cache * coresPerCache + index).flatMap(
      siblings,
    );
    write(`cpu/cpu${cpu}/topology/core_id`, String(core % coresPerNode));
    write(`cpu/cpu${cpu}/topology/physical_package_id`, String(Math.floor(node / nodesPerSocket)));
    write(`cpu/cpu${cpu}/topology/core_cpus_list`, siblings(core).join(','));
    write(`cpu/cpu${cpu}/cache/index0/level`, '1');
    write(`cpu/cpu${cpu}/cache/index0/shared_cpu_list`, siblings(core).join(','));
    write(`cpu/cpu${cpu}/cache/index3/level`, '3');
    write(`cpu/cpu${cpu}/cache/index3/shared_cpu_list`, inCache.join(','));
  }
  if (machine.withoutNuma === true) return root;
  const [near, far] = machine.distances ?? [11, 21];
  for (let node = 0; node < nodes; node++) {
    const onNode = all.filter((cpu) => Math.floor((cpu % cores) / coresPerNode) === node);
    write(`node/node${node}/cpulist`, onNode.filter((cpu) => !offline.has(cpu)).join(','));
    write(
      `node/node${node}/meminfo`,
      `Node ${node} MemTotal:       ${(machine.memoryPerNodeBytes ?? 2 ** 33) / 1024} kB\nNode ${node} MemFree:  1 kB`,
    );
    write(
      `node/node${node}/distance`,
      Array.from({ length: nodes }, (_, other) =>
        other === node ? 10 : Math.floor(other / nodesPerSocket) === Math.floor(node / nodesPerSocket) ? near : far,
      ).join(' '),
    );
    write(`node/node${node}/hugepages/hugepages-2048kB/nr_hugepages`, String(machine.hugePages ?? 0));
  }
  return root;
}

/** Writes the tree of the machine, and reads it as the agent does. */
export async function hostOf(machine: Machine): Promise<HostTopology> {
  const root = await sysfsTree(machine);
  try {
    return readHostTopology({ root, memoryBytes: 2 ** 33 });
  } finally {
    rmSync(join(root, '..', '..'), { recursive: true });
  }
}
