/**
 * Parses `--reserved-memory`: how much memory of each NUMA node is reserved for the system. Verifies that the sum agrees
 * with the node's reservations. Pure.
 */
import {
  addQuantities,
  compareQuantities,
  formatQuantity,
  parseQuantity,
  type Quantity,
  wholeUnits,
} from '../../../../api/meta/quantity.ts';
import { quoteText } from '../../../../api/meta/quote.ts';
import { StateError } from '../checkpoint-file.ts';
import { hugePageResource, type NumaNode } from '../topology/host-topology.ts';
import type { MachineState, MemoryTable } from './memory-state.ts';

/** Reserved bytes by node id and resource. */
type ReservedMemory = ReadonlyMap<number, Readonly<Record<string, number>>>;

/**
 * Parses a flag value such as `0:memory=1Gi,hugepages-2Mi=64Mi;1:memory=2Gi`. Flag validation has already accepted its
 * syntax.
 */
function parseReservedMemory(
  text: string,
): readonly { readonly node: number; readonly type: string; readonly amount: Quantity }[] {
  return text
    .split(';')
    .filter((part) => part !== '')
    .flatMap((part) => {
      const colon = part.indexOf(':');
      return part
        .slice(colon + 1)
        .split(',')
        .map((pair) => {
          const [type = '', amount = '0'] = pair.split('=');
          return { node: Number(part.slice(0, colon)), type, amount: parseQuantity(amount) };
        });
    });
}

const isMemory = (type: string): boolean => type === 'memory' || type.startsWith('hugepages-');

/**
 * Returns the reserved bytes of each NUMA node by the kind of memory. `nodeReserved` has the bytes that the node reserves by
 * resource, including hard eviction thresholds. Throws `StateError` for a NUMA node that does not exist, if the sums differ,
 * and if no memory is reserved at all.
 */
export function reservedMemory(
  text: string,
  nodes: readonly NumaNode[],
  nodeReserved: Readonly<Record<string, number>>,
): ReservedMemory {
  const zero = parseQuantity('0');
  const totals = new Map<string, Quantity>();
  const result = new Map<number, Record<string, number>>(nodes.map(({ id }) => [id, {}]));
  for (const { node, type, amount } of parseReservedMemory(text)) {
    const ofNode = result.get(node);
    if (ofNode === undefined)
      throw new StateError(
        `the reserved memory configuration references a NUMA node ${node} that does not exist on this machine`,
      );
    ofNode[type] = Number(wholeUnits(amount));
    totals.set(type, addQuantities(amount, totals.get(type) ?? zero));
  }
  const types = new Set([...totals.keys(), ...Object.keys(nodeReserved).filter(isMemory)]);
  for (const type of types) {
    const stated = totals.get(type) ?? zero;
    const reserved = { ...parseQuantity(String(Math.round(nodeReserved[type] ?? 0))), format: 'BinarySI' as const };
    if (compareQuantities(stated, reserved) !== 0)
      throw new StateError(
        `the total amount ${quoteText(formatQuantity(stated))} of type ${quoteText(type)} is not equal to the value ${quoteText(formatQuantity(reserved))} determined by Node Allocatable feature: make --reserved-memory add up to what --kube-reserved, --system-reserved and --eviction-hard keep`,
      );
  }
  if ([...result.values()].every((ofNode) => (ofNode['memory'] ?? 0) === 0))
    throw new StateError('[memorymanager] you should specify the system reserved memory: set --reserved-memory');
  return result;
}

/** Returns the machine state without any allocation. */
export function emptyMachineState(nodes: readonly NumaNode[], reserved: ReservedMemory): MachineState {
  const state: MachineState = {};
  for (const { id, memoryBytes, hugePages } of nodes) {
    const ofNode = reserved.get(id) ?? {};
    const table = (total: number, type: string, hugePageBytes: number): MemoryTable => {
      const systemReserved = ofNode[type] ?? 0;
      const allocatable = Math.max(0, total - systemReserved - hugePageBytes);
      return { total, systemReserved, allocatable, reserved: 0, free: allocatable };
    };
    const memoryMap: Record<string, MemoryTable> = {};
    let inPages = 0;
    for (const [pageBytes, pages] of hugePages) {
      const type = hugePageResource(pageBytes);
      memoryMap[type] = table(pages * pageBytes, type, 0);
      inPages += pages * pageBytes;
    }
    memoryMap['memory'] = table(memoryBytes, 'memory', inPages);
    state[id] = { numberOfAssignments: 0, memoryMap, cells: [id] };
  }
  return state;
}
