/** Creates and deletes the claims for extended resources, which the scheduler owns. */
import { CLAIM_FINALIZER } from '../../../api/kinds/device-claims.ts';
import type { Pod, ResourceClaim } from '../../../api/kinds/kinds.ts';
import { pods, resourceClaims } from '../../../api/client/resources.ts';
import type { TypedClient } from '../../../api/client/typed-client.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import type { ReservedClaim } from './pod-devices.ts';

interface Writer {
  readonly client: TypedClient;
  /** Writes allocation and reservation of a claim that exists. */
  readonly write: (reserved: ReservedClaim, pod: Pod) => Promise<ResourceClaim>;
}

/** Creates the claim and names it in the status of the pod. A claim that cannot become the pod's is deleted again. */
export async function createFor(
  pod: Pod,
  { claim, allocation, mappings = [] }: ReservedClaim,
  { client, write }: Writer,
): Promise<ResourceClaim> {
  const created = await client.create(resourceClaims, claim.metadata.namespace ?? '', claim);
  try {
    const written = await write({ claim: created, allocation }, pod);
    const { namespace = '', name = '', uid } = pod.metadata;
    const extendedResourceClaimStatus = { requestMappings: mappings, resourceClaimName: created.metadata.name };
    const body = { metadata: { uid }, status: { extendedResourceClaimStatus } };
    await client.patch(pods, namespace, name, { type: 'strategic', body, subresource: 'status' });
    return written;
  } catch (error) {
    await removeClaim(client, created);
    throw error;
  }
}

/** Removes the finalizer of the claim and deletes it. A claim that is gone, or was replaced, is no error. */
export async function removeClaim(client: TypedClient, { metadata }: ResourceClaim): Promise<void> {
  const { namespace = '', name = '', uid } = metadata;
  const current = await tolerate(client.get(resourceClaims, namespace, name), isNotFound);
  if (current === undefined || current.metadata.uid !== uid) return;
  const { finalizers = [] } = current.metadata;
  if (finalizers.includes(CLAIM_FINALIZER)) {
    const withoutFinalizer = {
      ...current.metadata,
      finalizers: finalizers.filter((finalizer) => finalizer !== CLAIM_FINALIZER),
    };
    await client.update(resourceClaims, { ...current, metadata: withoutFinalizer });
  }
  const preconditions = uid === undefined ? {} : { preconditions: { uid } };
  await tolerate(client.delete(resourceClaims, namespace, name, preconditions), isNotFound);
}
