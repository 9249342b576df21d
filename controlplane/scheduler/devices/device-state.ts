/**
 * Holds the scheduler's view of devices: classes, slices and claims from the informers, and the allocations that are being
 * written.
 */
import type { Informer, Informers } from '../../../api/client/informer.ts';
import type { DeviceClass, ResourceClaim, ResourceSlice } from '../../../api/kinds/kinds.ts';
import { deviceClasses, resourceClaims, resourceSlices } from '../../../api/client/resources.ts';
import type { DeviceLookup } from '../cluster-state.ts';
import type { PodInfo } from '../pod-info.ts';
import { AllocatedDevices, type DevicesInUse } from './allocated-devices.ts';
import { DevicePools } from './device-pools.ts';
import type { DeviceAllocation } from './device-requests.ts';
import { DeviceSelection } from './device-selection.ts';
import { podOfExtendedClaim } from '../../../api/kinds/device-claims.ts';
import { ExtendedResources } from './extended-resources.ts';
import type { ReservedClaim } from './pod-devices.ts';

/** Follows claims and slices only after a call of `onChange`, which adds the handlers to the informers. */
export class DeviceState implements DeviceLookup {
  readonly deviceSelection = new DeviceSelection();
  readonly #claims: Informer<ResourceClaim>;
  readonly #classes: Informer<DeviceClass>;
  readonly #slices: Informer<ResourceSlice>;
  /** The claims for extended resources by the namespace and UID of their pod. */
  readonly #extendedClaims = new Map<string, ResourceClaim>();
  /** The keys of the claims whose allocations are being written. */
  readonly #pending = new Set<string>();
  /** The devices of the stored and of the pending allocations. */
  readonly #allocated = new AllocatedDevices();
  /** The pools of the current slices. They are built on demand. */
  #pools: DevicePools | undefined;
  #extended: ExtendedResources | undefined;

  constructor(informers: Informers) {
    this.#claims = informers.for(resourceClaims);
    this.#classes = informers.for(deviceClasses);
    this.#slices = informers.for(resourceSlices);
  }

  /**
   * Keeps the state up to date, and calls back when claims, devices or device classes change, until the returned function is
   * called.
   */
  onChange(changed: (change: 'devices' | 'device-classes') => void): () => void {
    const claimChanged = (claim: ResourceClaim): void => {
      const pod = podKeyOf(claim);
      if (pod !== undefined) this.#extendedClaims.set(pod, claim);
      const allocation = claim.status?.allocation;
      this.#allocated.set(claim.metadata.uid ?? '', allocation);
      if (allocation !== undefined) this.#setPending(claim, undefined);
      changed('devices');
    };
    const slicesChanged = (): void => {
      this.#pools = undefined;
      changed('devices');
    };
    const classesChanged = (): void => {
      this.#extended = undefined;
      changed('device-classes');
    };
    const registrations = [
      this.#claims.addHandler({
        add: claimChanged,
        update: (_, claim) => claimChanged(claim),
        delete: (claim) => {
          const pod = podKeyOf(claim);
          if (pod !== undefined) this.#extendedClaims.delete(pod);
          this.#allocated.set(claim.metadata.uid ?? '', undefined);
          this.#setPending(claim, undefined);
          changed('devices');
        },
      }),
      this.#classes.addHandler({ add: classesChanged, update: classesChanged, delete: classesChanged }),
      this.#slices.addHandler({ add: slicesChanged, update: slicesChanged, delete: slicesChanged }),
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
    for (const { claim, allocation } of reserved) if (allocation !== undefined) this.#setPending(claim, allocation);
  }

  /** Removes allocations that could not be written. */
  forget(reserved: readonly ReservedClaim[]): void {
    for (const { claim } of reserved) this.#setPending(claim, undefined);
  }

  /**
   * Sets the pending allocation of a claim, or removes it. The key of a claim for extended resources is its pod, because the
   * claim gets its UID only when it is created.
   */
  #setPending(claim: ResourceClaim, allocation: DeviceAllocation | undefined): void {
    const key = podKeyOf(claim) ?? claim.metadata.uid ?? '';
    if (allocation === undefined) this.#pending.delete(key);
    else this.#pending.add(key);
    this.#allocated.set(`pending ${key}`, allocation);
  }

  deviceClaim(namespace: string, name: string): ResourceClaim | undefined {
    return this.#claims.get(namespace, name);
  }

  deviceClass(name: string): DeviceClass | undefined {
    return this.#classes.get('', name);
  }

  extendedResources(): ExtendedResources {
    this.#extended ??= new ExtendedResources(this.#classes.list());
    return this.#extended;
  }

  extendedClaim({ namespace, uid }: PodInfo): ResourceClaim | undefined {
    return this.#extendedClaims.get(`${namespace}/${uid}`);
  }

  devicePools(): DevicePools {
    this.#pools ??= new DevicePools(this.#slices.list());
    return this.#pools;
  }

  isBeingAllocated(claimUid: string): boolean {
    return this.#pending.has(claimUid);
  }

  allocatedDevices(): DevicesInUse {
    return this.#allocated;
  }
}

/** Returns the namespace and UID of the pod for whose extended resources the scheduler created the claim. */
function podKeyOf(claim: ResourceClaim): string | undefined {
  const pod = podOfExtendedClaim(claim);
  return pod === undefined ? undefined : `${claim.metadata.namespace}/${pod.uid}`;
}
