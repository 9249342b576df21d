/**
 * Counts how many allocations hold each device, and what they consume of devices that claims share. Each change of an
 * allocation changes only its own devices, so that a scheduling decision does not read the claims of the whole cluster.
 * `device-state.ts` reports the allocations.
 */
import { deviceKey } from '../../../api/kinds/device-claims.ts';
import { addQuantities, parseQuantity, type Quantity, subtractQuantities } from '../../../api/meta/quantity.ts';
import type { DeviceAllocation } from './device-requests.ts';

/** Amounts of the capacities of a device by their names. */
export type Consumption = ReadonlyMap<string, Quantity>;

/** The devices that are in use, by their keys. */
export interface DevicesInUse {
  /** Whether an allocation holds the whole device. */
  isTaken(key: string): boolean;
  /** What allocations consume of a shared device. `undefined` if none uses it. */
  consumed(key: string): Consumption | undefined;
}

interface Use {
  readonly key: string;
  /** Absent if the allocation holds the whole device. */
  readonly consumption: Consumption | undefined;
}

const NONE: readonly Use[] = [];

/** A device is free when no allocation holds it. */
export class AllocatedDevices implements DevicesInUse {
  readonly #holders = new Map<string, number>();
  readonly #shares = new Map<string, { holders: number; readonly consumed: Map<string, Quantity> }>();
  readonly #usesOf = new Map<string, readonly Use[]>();

  isTaken(key: string): boolean {
    return this.#holders.has(key);
  }

  consumed(key: string): Consumption | undefined {
    return this.#shares.get(key)?.consumed;
  }

  /** Replaces the allocation of that id. `undefined` removes it. */
  set(id: string, allocation: DeviceAllocation | undefined): void {
    const before = this.#usesOf.get(id) ?? NONE;
    const results = allocation?.devices?.results ?? [];
    const now = results
      .filter(({ adminAccess }) => adminAccess !== true)
      .map((result): Use => ({
        key: deviceKey(result),
        consumption: result.shareID === undefined ? undefined : consumptionOf(result.consumedCapacity ?? {}),
      }));
    for (const use of now) this.#count(use, 1);
    for (const use of before) this.#count(use, -1);
    if (now.length === 0) this.#usesOf.delete(id);
    else this.#usesOf.set(id, now);
  }

  #count({ key, consumption }: Use, by: 1 | -1): void {
    if (consumption === undefined) {
      const holders = (this.#holders.get(key) ?? 0) + by;
      if (holders === 0) this.#holders.delete(key);
      else this.#holders.set(key, holders);
      return;
    }
    const share = this.#shares.get(key) ?? { holders: 0, consumed: new Map<string, Quantity>() };
    share.holders += by;
    addConsumption(share.consumed, consumption, by);
    if (share.holders === 0) this.#shares.delete(key);
    else this.#shares.set(key, share);
  }
}

/** Adds the amounts (`by` 1), or subtracts them. */
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
