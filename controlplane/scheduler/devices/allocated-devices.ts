/**
 * Counts how many allocations hold each device. Each change of an allocation changes only its own devices, so that a scheduling
 * decision does not read the claims of the whole cluster. `device-state.ts` reports the allocations.
 */
import { deviceKey } from './device-pools.ts';
import type { DeviceAllocation } from './device-requests.ts';

const NONE: readonly string[] = [];

/** A device is free when no allocation holds it. */
export class AllocatedDevices {
  readonly #holders = new Map<string, number>();
  readonly #keysOf = new Map<string, readonly string[]>();
  /** The keys of the devices that at least one allocation holds. */
  readonly #keys = new Set<string>();

  get keys(): ReadonlySet<string> {
    return this.#keys;
  }

  /** Replaces the allocation of that id. `undefined` removes it. */
  set(id: string, allocation: DeviceAllocation | undefined): void {
    const before = this.#keysOf.get(id) ?? NONE;
    const results = allocation?.devices?.results ?? [];
    const now = results.filter(({ adminAccess }) => adminAccess !== true).map((result) => deviceKey(result));
    for (const key of now) this.#add(key);
    for (const key of before) this.#remove(key);
    if (now.length === 0) this.#keysOf.delete(id);
    else this.#keysOf.set(id, now);
  }

  #add(key: string): void {
    this.#holders.set(key, (this.#holders.get(key) ?? 0) + 1);
    this.#keys.add(key);
  }

  #remove(key: string): void {
    const left = (this.#holders.get(key) ?? 0) - 1;
    if (left > 0) this.#holders.set(key, left);
    else {
      this.#holders.delete(key);
      this.#keys.delete(key);
    }
  }
}
