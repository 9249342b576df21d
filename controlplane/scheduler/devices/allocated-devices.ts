/**
 * Counts how many allocations hold each device, and what they consume of devices that claims share. Each change of an
 * allocation changes only its own devices, so that a scheduling decision does not read the claims of the whole cluster.
 */
import { deviceKey } from '../../../api/kinds/device-claims.ts';
import type { NodeSelector } from '../../../api/kinds/node-selection.ts';
import { addQuantities, parseQuantity, type Quantity, subtractQuantities } from '../../../api/meta/quantity.ts';
import type { DeviceAllocation } from './device-requests.ts';

/** Amounts of the capacities of a device by their names. */
export type Consumption = ReadonlyMap<string, Quantity>;

/**
 * The devices that are in use, by their keys (`deviceKey`). `node` is given for a device that one node alone can use:
 * allocations for other nodes then do not count, because another node may have published a device with the same names.
 */
export interface DevicesInUse {
  /** Whether an allocation holds the whole device. */
  isTaken(key: string, node?: string): boolean;
  /** What allocations consume of a shared device. `undefined` if no allocation consumes a part of it. */
  consumed(key: string, node?: string): Consumption | undefined;
}

interface Use {
  readonly key: string;
  /** The node of the allocation, or `SEVERAL`. */
  readonly node: string;
  /** The part of the device that the allocation holds; `undefined` if it holds the whole device. */
  readonly consumption: Consumption | undefined;
}

/** The allocations of one device for one node. */
interface Tally {
  holders: number;
  sharers: number;
  readonly consumed: Map<string, Quantity>;
}

const NONE: readonly Use[] = [];
/** Takes the place of the node's name in an allocation that is not for a single node. */
const SEVERAL = '';

/** Counts the allocations by device and node. */
export class AllocatedDevices implements DevicesInUse {
  /** The tallies by device key, and then by node. */
  readonly #tallies = new Map<string, Map<string, Tally>>();
  readonly #usesOf = new Map<string, readonly Use[]>();

  isTaken(key: string, node?: string): boolean {
    return this.#talliesOf(key, node).some(({ holders }) => holders > 0);
  }

  consumed(key: string, node?: string): Consumption | undefined {
    const [first, ...others] = this.#talliesOf(key, node).filter(({ sharers }) => sharers > 0);
    if (first === undefined || others.length === 0) return first?.consumed;
    const sum = new Map(first.consumed);
    for (const { consumed } of others) addConsumption(sum, consumed, 1);
    return sum;
  }

  #talliesOf(key: string, node: string | undefined): readonly Tally[] {
    const byNode = this.#tallies.get(key);
    if (byNode === undefined) return [];
    return node === undefined ? [...byNode.values()] : [byNode.get(SEVERAL) ?? [], byNode.get(node) ?? []].flat();
  }

  /**
   * Replaces the allocation with this id, or removes it if `allocation` is `undefined`. Devices with `adminAccess` are not
   * counted, because they stay free for others.
   */
  set(id: string, allocation: DeviceAllocation | undefined): void {
    const before = this.#usesOf.get(id) ?? NONE;
    const results = allocation?.devices?.results ?? [];
    const node = nodeOf(allocation);
    const now = results
      .filter(({ adminAccess }) => adminAccess !== true)
      .map((result): Use => ({
        key: deviceKey(result),
        node,
        consumption: result.shareID === undefined ? undefined : consumptionOf(result.consumedCapacity ?? {}),
      }));
    for (const use of now) this.#count(use, 1);
    for (const use of before) this.#count(use, -1);
    if (now.length === 0) this.#usesOf.delete(id);
    else this.#usesOf.set(id, now);
  }

  #count({ key, node, consumption }: Use, by: 1 | -1): void {
    const byNode = this.#tallies.get(key) ?? new Map<string, Tally>();
    const tally = byNode.get(node) ?? { holders: 0, sharers: 0, consumed: new Map<string, Quantity>() };
    if (consumption === undefined) tally.holders += by;
    else {
      tally.sharers += by;
      addConsumption(tally.consumed, consumption, by);
    }
    if (tally.holders + tally.sharers > 0) byNode.set(node, tally);
    else byNode.delete(node);
    if (byNode.size > 0) this.#tallies.set(key, byNode);
    else this.#tallies.delete(key);
  }
}

/** Returns the node of an allocation, or `SEVERAL` if it is not for a single node. */
function nodeOf(allocation: DeviceAllocation | undefined): string {
  const { nodeSelectorTerms = [] } = (allocation?.nodeSelector ?? {}) as Partial<NodeSelector>;
  const [{ matchFields = [], matchExpressions = [] } = {}, ...otherTerms] = nodeSelectorTerms;
  const [{ key, operator, values = [] } = { key: '', operator: '' }, ...otherFields] = matchFields;
  const [name = SEVERAL, ...otherNames] = values;
  const isOne = [...otherTerms, ...matchExpressions, ...otherFields, ...otherNames].length === 0;
  return isOne && key === 'metadata.name' && operator === 'In' ? name : SEVERAL;
}

/** Adds the amounts (`by` is 1) or subtracts them (`by` is -1), in place. */
export function addConsumption(into: Map<string, Quantity>, consumption: Consumption, by: 1 | -1): void {
  for (const [name, amount] of consumption) {
    const before = into.get(name) ?? NOTHING;
    into.set(name, by === 1 ? addQuantities(before, amount) : subtractQuantities(before, amount));
  }
}

const NOTHING = parseQuantity('0');

function consumptionOf(capacity: Readonly<Record<string, string>>): Consumption {
  return new Map(Object.entries(capacity).map(([name, text]) => [name, parseQuantity(text)]));
}
