/**
 * Holds what scheduler, controllers and admission have in common about claims for devices: the key of a device, and the claims
 * that the scheduler creates for the extended resources of a pod. Pure.
 */
import type { ResourceClaim } from './kinds.ts';

/** The finalizer that keeps a claim from being removed while it has devices. */
export const CLAIM_FINALIZER = 'resource.kubernetes.io/delete-protection';
/** The prefix of the extended resource that stands for the devices of a class. The name of the device class follows. */
export const CLASS_RESOURCE_PREFIX = 'deviceclass.resource.kubernetes.io/';
/** The annotation of claims for extended resources. */
export const EXTENDED_CLAIM = 'resource.kubernetes.io/extended-resource-claim';

/** Returns the reference to the pod for whose extended resources the scheduler created the claim. Other claims have none. */
export function podOfExtendedClaim({ metadata }: ResourceClaim) {
  if (metadata.annotations?.[EXTENDED_CLAIM] !== 'true') return undefined;
  const owner = metadata.ownerReferences?.find(({ controller }) => controller === true);
  return owner?.kind === 'Pod' && owner.apiVersion === 'v1' ? owner : undefined;
}

/** Returns a key from driver, pool and name. Only names of pools contain slashes, so that no two devices have the same key. */
export function deviceKey({ driver, pool, device }: { driver: string; pool: string; device: string }): string {
  return `${driver}/${pool}/${device}`;
}
