/**
 * Decides what happens to the claims of a set when the set or a member is deleted: the garbage collector deletes a claim
 * together with its owner. Pure.
 */
import type { PersistentVolumeClaim, Pod, StatefulSet } from '../../../api/machinery/kinds.ts';
import { pods, statefulSets } from '../../../api/machinery/resources.ts';
import type { OwnerReference } from '../../../api/meta/object.ts';
import { controllerReference } from '../owner-references.ts';
import { isMember } from './stateful-set-core.ts';

/**
 * Returns the owners that a claim of that member must have; `undefined` if it has them. With the policy Delete, the claims of a
 * remaining member are owned by the set, and those of a member that is scaled down by its pod.
 */
export function wantedOwners(
  set: StatefulSet,
  member: { readonly pod: Pod; readonly ordinal: number },
  claim: PersistentVolumeClaim,
): OwnerReference[] | undefined {
  const { whenDeleted = 'Retain', whenScaled = 'Retain' } = set.spec?.persistentVolumeClaimRetentionPolicy ?? {};
  const stays = isMember(set, member.ordinal);
  const before = claim.metadata.ownerReferences ?? [];
  const { name: podName } = member.pod.metadata;
  const others = before.filter(
    ({ kind, name }) =>
      !(kind === 'StatefulSet' && name === set.metadata.name) && !(kind === 'Pod' && name === podName),
  );
  // A claim with another controller stays unchanged.
  if (others.some(({ controller }) => controller === true)) return undefined;
  const own: OwnerReference[] = [];
  if (!stays && whenScaled === 'Delete') own.push(controllerReference(member.pod, pods));
  else if (whenDeleted === 'Delete') own.push(controllerReference(set, statefulSets));
  const wanted = [...others, ...own];
  const same =
    wanted.length === before.length && wanted.every(({ uid }) => before.some((reference) => reference.uid === uid));
  return same ? undefined : wanted;
}
