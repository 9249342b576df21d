/** Selects the volume of a claim: the smallest available one that fulfils the claim. Pure. */
import type { PersistentVolume, PersistentVolumeClaim } from '../../../api/kinds/kinds.ts';
import { compareQuantities, parseQuantity, type Quantity } from '../../../api/meta/quantity.ts';
import { fromLabelSelector } from '../../../api/meta/selector.ts';
import { BETA_STORAGE_CLASS_ANNOTATION } from '../../../api/meta/well-known-labels.ts';

/**
 * Returns the storage class of a claim or a volume, and `undefined` if it names none. Such a claim may get the default class.
 */
export function classOf(object: PersistentVolumeClaim | PersistentVolume): string | undefined {
  return object.metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION] ?? object.spec?.storageClassName;
}

/** Whether the volume is reserved for this claim, or already bound to it. */
export function isBoundTo(volume: PersistentVolume, claim: PersistentVolumeClaim): boolean {
  const owner = volume.spec?.claimRef;
  if (owner === undefined) return false;
  if (owner.name !== claim.metadata.name || owner.namespace !== claim.metadata.namespace) return false;
  return (owner.uid ?? '') === '' || owner.uid === claim.metadata.uid;
}

const capacityOf = (volume: PersistentVolume): Quantity => parseQuantity(volume.spec?.capacity?.['storage'] ?? '0');
const requestOf = (claim: PersistentVolumeClaim): Quantity =>
  parseQuantity(claim.spec?.resources?.requests?.['storage'] ?? '0');
const modeOf = (object: { spec?: { volumeMode?: string | undefined } | undefined }): string =>
  object.spec?.volumeMode ?? 'Filesystem';

/** Returns why the volume that the claim names cannot be bound; `undefined` if it can. */
export function mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim): string | undefined {
  if (volume.metadata.deletionTimestamp !== undefined) return 'the volume is marked for deletion';
  if (compareQuantities(capacityOf(volume), requestOf(claim)) < 0) return 'requested PV is too small';
  if ((classOf(volume) ?? '') !== (classOf(claim) ?? '')) return 'storageClassName does not match';
  if ((volume.spec?.volumeAttributesClassName ?? '') !== (claim.spec?.volumeAttributesClassName ?? ''))
    return 'volumeAttributesClassName does not match';
  if (modeOf(volume) !== modeOf(claim)) return 'incompatible volumeMode';
  const offered = volume.spec?.accessModes ?? [];
  if (!(claim.spec?.accessModes ?? []).every((mode) => offered.includes(mode))) return 'incompatible accessMode';
  return undefined;
}

/**
 * Returns the best volume for a claim: one that is reserved for it, or else the smallest that matches. `reservedOnly` leaves
 * out the volumes that are not reserved.
 */
export function findVolume(
  claim: PersistentVolumeClaim,
  volumes: Iterable<PersistentVolume>,
  { reservedOnly }: { readonly reservedOnly: boolean },
): PersistentVolume | undefined {
  const selector = claim.spec?.selector;
  const selects = selector === undefined ? undefined : fromLabelSelector(selector as never);
  let best: PersistentVolume | undefined;
  for (const volume of volumes) {
    if (isBoundTo(volume, claim)) {
      if (volume.metadata.deletionTimestamp === undefined && modeOf(volume) === modeOf(claim)) {
        if ((volume.spec?.claimRef?.uid ?? '') !== '' || mismatch(volume, claim) === undefined) return volume;
      }
      continue;
    }
    if (reservedOnly || volume.spec?.claimRef !== undefined || volume.status?.phase !== 'Available') continue;
    if (mismatch(volume, claim) !== undefined) continue;
    if (selects !== undefined && !selects.matches(volume.metadata.labels ?? {})) continue;
    if (best === undefined || compareQuantities(capacityOf(volume), capacityOf(best)) < 0) best = volume;
  }
  return best;
}
