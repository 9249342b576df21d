/**
 * Decides what happens to the claims of a set when the set or a member is deleted: the garbage collector deletes a claim
 * together with its owner. Pure.
 */
import type { PersistentVolumeClaim, Pod, StatefulSet } from '../../../api/kinds/kinds.ts';
import { pods, statefulSets } from '../../../api/client/resources.ts';
import type { OwnerReference } from '../../../api/meta/object.ts';
import { controllerReference } from '../owner-references.ts';
import { isMember } from './stateful-set-core.ts';

/**
 * Returns the owners that a claim of that member must have; `undefined` if it has them. With the policy Delete, the set
 * controls the claims of a remaining member, and the pod controls the claims of a member that is scaled down. Neither owns a
 * claim that has another controller. A claim of an earlier set or pod with the same name stays unchanged.
 */
export function wantedOwners(
  set: StatefulSet,
  member: { readonly pod: Pod; readonly ordinal: number },
  claim: PersistentVolumeClaim,
): OwnerReference[] | undefined {
  const { whenDeleted = 'Retain', whenScaled = 'Retain' } = set.spec?.persistentVolumeClaimRetentionPolicy ?? {};
  const before = claim.metadata.ownerReferences ?? [];
  const references = [controllerReference(set, statefulSets), controllerReference(member.pod, pods)] as const;
  const sameNamed = before.filter((one) => references.some((reference) => hasSameName(one, reference)));
  if (!sameNamed.every(({ uid }) => references.some((reference) => reference.uid === uid))) return undefined;
  const others = before.filter((one) => !sameNamed.includes(one));
  const wanted: OwnerReference[] = [];
  if (!isMember(set, member.ordinal) && whenScaled === 'Delete') wanted.push(references[1]);
  else if (whenDeleted === 'Delete') wanted.push(references[0]);
  if (others.some(({ controller }) => controller === true)) wanted.length = 0;
  const isSame =
    sameNamed.length === wanted.length &&
    wanted.every(({ uid }) => sameNamed.some((one) => one.uid === uid && one.controller === true));
  return isSame ? undefined : [...others, ...wanted];
}

const hasSameName = (one: OwnerReference, other: OwnerReference): boolean =>
  one.apiVersion === other.apiVersion && one.kind === other.kind && one.name === other.name;
