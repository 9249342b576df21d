/**
 * Finds what quotas need for counting devices of claims as extended resources: the resource that a class backs, and the pod for
 * whose extended resources the scheduler created a claim. That pod is charged for them already.
 */
import { podOfExtendedClaim } from '../../../api/kinds/device-claims.ts';
import type { DeviceClass, Pod, ResourceClaim } from '../../../api/kinds/kinds.ts';

/** Looks up what a claim refers to. */
export interface ClaimLookup {
  deviceClass(name: string): DeviceClass | undefined;
  pod(namespace: string, name: string): Pod | undefined;
  claims(namespace: string): readonly ResourceClaim[];
}

/**
 * Returns the pod of a claim for extended resources. The status of the pod must name the claim. Until it names one, the oldest
 * claim of the pod counts, so that nobody gets devices beyond a quota with further claims. Returns `undefined` for all other
 * claims.
 */
export function podOfClaim(claim: ResourceClaim, lookup: ClaimLookup): Pod | undefined {
  const { namespace = '', name = '' } = claim.metadata;
  const createdMs = (one: ResourceClaim): number => Date.parse(one.metadata.creationTimestamp ?? '');
  const owner = podOfExtendedClaim(claim);
  if (owner === undefined) return undefined;
  const pod = lookup.pod(namespace, owner.name);
  if (pod?.metadata.uid !== owner.uid) return undefined;
  const named = pod.status?.extendedResourceClaimStatus?.resourceClaimName;
  if (named !== undefined) return named === name ? pod : undefined;
  const isFirst = lookup.claims(namespace).every((other) => {
    if (podOfExtendedClaim(other)?.uid !== owner.uid) return true;
    const after = createdMs(other) - createdMs(claim);
    return after > 0 || (after === 0 && (other.metadata.name ?? '') >= name);
  });
  return isFirst ? pod : undefined;
}
