/**
 * Holds the scheduler's view of devices: classes, slices and claims from the informers, and the allocations that are being
 * written. `cluster-watch.ts` owns it.
 */
import type { Informer, Informers } from '../../../api/machinery/informer.ts';
import type { DeviceClass, ResourceClaim, ResourceSlice } from '../../../api/machinery/kinds.ts';
import { deviceClasses, resourceClaims, resourceSlices } from '../../../api/machinery/resources.ts';
import type { DeviceLookup } from '../cluster-state.ts';
import { AllocatedDevices } from './allocated-devices.ts';
import { DevicePools } from './device-pools.ts';
import type { DeviceAllocation } from './device-requests.ts';
import { DeviceSelection } from './device-selection.ts';
import type { ReservedClaim } from './pod-devices.ts';

/** Follows claims and slices only after a call of `onChange`, which adds the handlers to the informers. */
export class DeviceState implements DeviceLookup {
  readonly deviceSelection = new DeviceSelection();
  readonly #claims: Informer<ResourceClaim>;
  readonly #classes: Informer<DeviceClass>;
  readonly #slices: Informer<ResourceSlice>;
  /** The UIDs of the claims whose allocations are being written. */
  readonly #pending = new Set<string>();
  /** The devices of the stored and of the pending allocations. */
  readonly #allocated = new AllocatedDevices();
  /** The pools of the current slices. They are built on demand. */
  #pools: DevicePools | undefined;

  constructor(informers: Informers) {
    this.#claims = informers.for(resourceClaims);
    this.#classes = informers.for(deviceClasses);
    this.#slices = informers.for(resourceSlices);
  }

  /** Calls back when devices or claims change in a way that may help a pod. Returns a function that removes the callback. */
  onChange(changed: () => void): () => void {
    const settled = (claim: ResourceClaim): void => {
      const uid = claim.metadata.uid ?? '';
      const allocation = claim.status?.allocation;
      this.#allocated.set(uid, allocation);
      if (allocation !== undefined) this.#setPending(uid, undefined);
      changed();
    };
    const published = (): void => {
      this.#pools = undefined;
      changed();
    };
    const registrations = [
      this.#claims.addHandler({
        add: settled,
        update: (_, claim) => settled(claim),
        delete: ({ metadata }) => {
          this.#allocated.set(metadata.uid ?? '', undefined);
          this.#setPending(metadata.uid ?? '', undefined);
          changed();
        },
      }),
      this.#classes.addHandler({ add: changed, update: changed }),
      this.#slices.addHandler({ add: published, update: published, delete: published }),
    ];
    return () => {
      for (const registration of registrations) registration.remove();
    };
  }

  knowsDevices(): boolean {
    return this.#claims.hasSynced && this.#classes.hasSynced && this.#slices.hasSynced;
  }

  async synced(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#claims.synced(signal), this.#classes.synced(signal), this.#slices.synced(signal)]);
  }

  assume(reserved: readonly ReservedClaim[]): void {
    for (const { claim, allocation } of reserved)
      if (allocation !== undefined) this.#setPending(claim.metadata.uid ?? '', allocation);
  }

  /** Removes allocations that could not be written. */
  forget(reserved: readonly ReservedClaim[]): void {
    for (const { claim } of reserved) this.#setPending(claim.metadata.uid ?? '', undefined);
  }

  #setPending(uid: string, allocation: DeviceAllocation | undefined): void {
    if (allocation === undefined) this.#pending.delete(uid);
    else this.#pending.add(uid);
    this.#allocated.set(`pending ${uid}`, allocation);
  }

  deviceClaim(namespace: string, name: string): ResourceClaim | undefined {
    return this.#claims.get(namespace, name);
  }

  deviceClass(name: string): DeviceClass | undefined {
    return this.#classes.get('', name);
  }

  devicePools(): DevicePools {
    this.#pools ??= new DevicePools(this.#slices.list());
    return this.#pools;
  }

  isBeingAllocated(claimUid: string): boolean {
    return this.#pending.has(claimUid);
  }

  allocatedDevices(): ReadonlySet<string> {
    return this.#allocated.keys;
  }
}
