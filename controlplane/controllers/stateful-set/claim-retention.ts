/** What becomes of a set's claims when the set or a member goes: whoever owns a claim takes it along. Pure. */
import type { PersistentVolumeClaim, Pod, StatefulSet } from '../../../api/machinery/kinds.ts';
import { pods, statefulSets } from '../../../api/machinery/resources.ts';
import type { OwnerReference } from '../../../api/meta/object.ts';
import { controllerReference } from '../owner-references.ts';
import { isMember } from './stateful-set-core.ts';

/**
 * The owners that a claim of that member must have; `undefined` when it has them. A member that stays ties its claims to the
 * set, one that is scaled away to itself, each where the policy says that claims are deleted.
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
  // A claim that another object controls stays unchanged.
  if (others.some(({ controller }) => controller === true)) return undefined;
  const own: OwnerReference[] = [];
  if (!stays && whenScaled === 'Delete') own.push(controllerReference(member.pod, pods));
  else if (whenDeleted === 'Delete') own.push(controllerReference(set, statefulSets));
  const wanted = [...others, ...own];
  const same =
    wanted.length === before.length && wanted.every(({ uid }) => before.some((reference) => reference.uid === uid));
  return same ? undefined : wanted;
}
