/**
 * Holds the scheduler's view of devices: classes, slices and claims from the informers, and the allocations that are being
 * written. `cluster-watch.ts` owns it.
 */
import type { Informer, Informers } from '../../../api/machinery/informer.ts';
import type { DeviceClass, ResourceClaim, ResourceSlice } from '../../../api/machinery/kinds.ts';
import { deviceClasses, resourceClaims, resourceSlices } from '../../../api/machinery/resources.ts';
import type { DeviceLookup } from '../cluster-state.ts';
import { deviceKey, DevicePools } from './device-pools.ts';
import type { DeviceAllocation } from './device-requests.ts';
import { DeviceSelection } from './device-selection.ts';
import type { ReservedClaim } from './pod-devices.ts';

export class DeviceState implements DeviceLookup {
  readonly deviceSelection = new DeviceSelection();
  readonly #claims: Informer<ResourceClaim>;
  readonly #classes: Informer<DeviceClass>;
  readonly #slices: Informer<ResourceSlice>;
  /** The allocations that are being written, by UID of the claim. */
  readonly #pending = new Map<string, DeviceAllocation>();
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
      if (claim.status?.allocation !== undefined) this.#pending.delete(claim.metadata.uid ?? '');
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
          this.#pending.delete(metadata.uid ?? '');
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
      if (allocation !== undefined) this.#pending.set(claim.metadata.uid ?? '', allocation);
  }

  /** Removes allocations that could not be written. */
  forget(reserved: readonly ReservedClaim[]): void {
    for (const { claim } of reserved) this.#pending.delete(claim.metadata.uid ?? '');
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
    const allocations = [
      ...this.#claims.list().flatMap(({ status }) => (status?.allocation === undefined ? [] : [status.allocation])),
      ...this.#pending.values(),
    ];
    const keys = new Set<string>();
    for (const { devices } of allocations)
      for (const result of devices?.results ?? []) if (result.adminAccess !== true) keys.add(deviceKey(result));
    return keys;
  }
}
