/** Writes allocations and reservations of resource claims. */
import { formatTime, type Clock } from '../../../api/machinery/clock.ts';
import type { Pod, ResourceClaim } from '../../../api/kinds/kinds.ts';
import { resourceClaims } from '../../../api/client/resources.ts';
import type { TypedClient } from '../../../api/client/typed-client.ts';
import { isConflict, isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import { createFor, removeClaim } from './extended-claim-writes.ts';
import { CLAIM_FINALIZER, podOfExtendedClaim } from '../../../api/kinds/device-claims.ts';
import type { ReservedClaim } from './pod-devices.ts';

/** How often a write is tried while others change the claim. */
const ATTEMPTS = 5;

/** Returns the writes of claims that `PodWrites` describes. */
export function claimWrites(client: TypedClient, clock: Clock) {
  const write = (reserved: ReservedClaim, pod: Pod) => writeOnce(client, clock, reserved, pod);
  /** Retries if another client writes the claim at the same time. */
  const writeAgain = async (reserved: ReservedClaim, pod: Pod): Promise<ResourceClaim> => {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await write(reserved, pod);
      } catch (error) {
        if (!isConflict(error) || attempt === ATTEMPTS) throw error;
      }
    }
  };
  return {
    reserve: (reserved: ReservedClaim, pod: Pod): Promise<ResourceClaim> =>
      reserved.mappings === undefined
        ? writeAgain(reserved, pod)
        : createFor(pod, reserved, { client, write: writeAgain }),

    async unreserve(claim: ResourceClaim, pod: Pod): Promise<void> {
      const { namespace = '', name = '' } = claim.metadata;
      // A claim without a name was not created.
      if (name === '') return;
      if (podOfExtendedClaim(claim) !== undefined) {
        await removeClaim(client, claim);
        return;
      }
      const current = await tolerate(client.get(resourceClaims, namespace, name), isNotFound);
      const { reservedFor, ...status } = current?.status ?? {};
      const remaining = (reservedFor ?? []).filter(({ uid }) => uid !== pod.metadata.uid);
      if (current === undefined || remaining.length === (reservedFor ?? []).length) return;
      const next = { ...status, ...(remaining.length === 0 ? {} : { reservedFor: remaining }) };
      await client.update(resourceClaims, { ...current, status: next }, { subresource: 'status' });
    },

    async free(claim: ResourceClaim): Promise<void> {
      if (podOfExtendedClaim(claim) !== undefined) {
        await removeClaim(client, claim);
        return;
      }
      const { metadata } = claim;
      const current = await client.get(resourceClaims, metadata.namespace ?? '', metadata.name ?? '');
      if (current.metadata.resourceVersion !== metadata.resourceVersion) return;
      const { allocation: _allocation, reservedFor: _reservedFor, ...status } = current.status ?? {};
      await client.update(resourceClaims, { ...current, status }, { subresource: 'status' });
    },
  };
}

async function writeOnce(
  client: TypedClient,
  clock: Clock,
  { claim, allocation }: ReservedClaim,
  pod: Pod,
): Promise<ResourceClaim> {
  const { namespace = '', name = '', uid } = claim.metadata;
  let current = await client.get(resourceClaims, namespace, name);
  if (current.metadata.uid !== uid) throw new Error(`claim ${namespace}/${name} was replaced`);
  if (current.metadata.deletionTimestamp !== undefined)
    throw new Error(`claim ${namespace}/${name} got deleted in the meantime`);
  const finalizers = current.metadata.finalizers ?? [];
  const { status } = current;
  if (allocation === undefined && status?.allocation === undefined)
    throw new Error(`claim ${namespace}/${name} got deallocated elsewhere in the meantime`);
  if (allocation !== undefined && status?.allocation !== undefined)
    throw new Error(`claim ${namespace}/${name} already allocated elsewhere`);
  if (allocation !== undefined && !finalizers.includes(CLAIM_FINALIZER)) {
    const metadata = { ...current.metadata, finalizers: [...finalizers, CLAIM_FINALIZER] };
    current = await client.update(resourceClaims, { ...current, metadata });
  }
  const reservedFor = (status?.reservedFor ?? []).filter((consumer) => consumer.uid !== pod.metadata.uid);
  const consumer = { resource: 'pods', name: pod.metadata.name ?? '', uid: pod.metadata.uid ?? '' };
  const next = {
    ...status,
    ...(allocation === undefined
      ? {}
      : { allocation: { ...allocation, allocationTimestamp: formatTime(clock.now()) } }),
    reservedFor: [...reservedFor, consumer],
  };
  return client.update(resourceClaims, { ...current, status: next }, { subresource: 'status' });
}
