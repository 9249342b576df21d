/** Converts the requests of a claim to the form of the allocator: each with its alternatives, the preferred one first. Pure. */
import type { ResourceClaim } from '../../../api/kinds/kinds.ts';

type DeviceClaim = NonNullable<NonNullable<ResourceClaim['spec']>['devices']>;
type Request = NonNullable<DeviceClaim['requests']>[number];
type Exact = NonNullable<Request['exactly']>;

/** The allocation as it is written to the status of the claim. */
export type DeviceAllocation = NonNullable<NonNullable<ResourceClaim['status']>['allocation']>;
/** A constraint between the devices of a claim. */
export type DeviceConstraint = NonNullable<DeviceClaim['constraints']>[number];

/** One way to satisfy a request. */
export interface DeviceAlternative extends Exact {
  /** The name of the request, or `request/subrequest`. */
  readonly name: string;
}

/** A request with at least one alternative. */
interface DeviceRequest {
  readonly name: string;
  readonly alternatives: readonly DeviceAlternative[];
}

/** Returns the requests of a claim with their alternatives. A request with `exactly` has that one alternative. */
export function requestsOf(claim: ResourceClaim): readonly DeviceRequest[] {
  return (claim.spec?.devices?.requests ?? []).map(({ name, exactly, firstAvailable = [] }) => ({
    name,
    alternatives:
      exactly === undefined
        ? firstAvailable.map((sub) => ({ ...sub, name: `${name}/${sub.name}` }))
        : [{ ...exactly, name }],
  }));
}

/**
 * Whether a list of request names includes an alternative. The name of a request includes all its alternatives. An empty list
 * includes everything.
 */
export function includesRequest(names: readonly string[] | undefined, alternative: string): boolean {
  if (names === undefined || names.length === 0) return true;
  return names.some((name) => name === alternative || alternative.startsWith(`${name}/`));
}
