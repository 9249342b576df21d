/** Defines the plugins for storage: DefaultStorageClass, StorageObjectInUseProtection and PersistentVolumeClaimResize. */
import type { KubeObject } from '../../../api/meta/object.ts';
import { compareQuantities, parseQuantity } from '../../../api/meta/quantity.ts';
import type { PersistentVolumeClaim } from '../../../api/kinds/kinds.ts';
import { storageClasses } from '../../../api/client/resources.ts';
import { ownMember } from '../../../api/meta/own-member.ts';
import { refusal, isClaim } from './pod-attributes.ts';
import type { AdmissionPlugin } from './admission.ts';
import type { Listers } from '../../model/listers.ts';
import { BETA_STORAGE_CLASS_ANNOTATION, DEFAULT_CLASS_ANNOTATIONS } from '../../../api/meta/well-known-labels.ts';
import { groupResourceName } from '../../../api/meta/group-resource.ts';

/** Returns the newest class that is marked as default; the name decides between classes of the same age. */
export function newestDefault<T extends KubeObject>(
  objects: readonly T[],
  annotations: readonly string[],
): T | undefined {
  const marked = objects.filter((object) =>
    annotations.some((annotation) => ownMember(object.metadata.annotations, annotation) === 'true'),
  );
  const time = (object: T): number => Date.parse(object.metadata.creationTimestamp ?? '') || 0;
  return marked.sort((a, b) => time(b) - time(a) || ((a.metadata.name ?? '') < (b.metadata.name ?? '') ? -1 : 1))[0];
}

/** Sets the newest default class on new claims that name no class, not even the empty one. */
export function defaultStorageClass(listers: Listers): AdmissionPlugin {
  const lister = listers.of(storageClasses);
  return {
    name: 'DefaultStorageClass',
    handles: (operation) => operation === 'CREATE',
    admit(attributes) {
      if (!isClaim(attributes)) return;
      const claim = attributes.object as PersistentVolumeClaim | undefined;
      if (claim === undefined || claim.metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION] !== undefined) return;
      const spec = (claim.spec ??= {});
      if (spec.storageClassName !== undefined && spec.storageClassName !== null) return;
      const found = newestDefault(lister.list(), DEFAULT_CLASS_ANNOTATIONS);
      if (found?.metadata.name !== undefined) spec.storageClassName = found.metadata.name;
    },
  };
}

/** The finalizers by resource and group. */
const PROTECTION: ReadonlyMap<string, string> = new Map(
  Object.entries({
    persistentvolumeclaims: 'kubernetes.io/pvc-protection',
    persistentvolumes: 'kubernetes.io/pv-protection',
    'volumeattributesclasses.storage.k8s.io': 'kubernetes.io/vac-protection',
  }),
);

/** Adds the finalizers by which claims, volumes and attributes classes stay until nothing uses them. */
export function storageObjectInUseProtection(): AdmissionPlugin {
  return {
    name: 'StorageObjectInUseProtection',
    handles: (operation) => operation === 'CREATE',
    admit(attributes) {
      const finalizer = PROTECTION.get(groupResourceName(attributes.resource));
      if (finalizer === undefined || attributes.subresource !== '' || attributes.object === undefined) return;
      const { metadata } = attributes.object;
      if (metadata.finalizers?.includes(finalizer) === true) return;
      metadata.finalizers = [...(metadata.finalizers ?? []), finalizer];
    },
  };
}

/** Checks updates of claims against `allowVolumeExpansion` of their storage class. */
export function persistentVolumeClaimResize(listers: Listers): AdmissionPlugin {
  const lister = listers.of(storageClasses);
  return {
    name: 'PersistentVolumeClaimResize',
    handles: (operation) => operation === 'UPDATE',
    validate(attributes) {
      if (!isClaim(attributes)) return;
      const claim = attributes.object as PersistentVolumeClaim | undefined;
      const old = attributes.oldObject as PersistentVolumeClaim | undefined;
      const requested = claim?.spec?.resources?.requests?.['storage'];
      const before = old?.spec?.resources?.requests?.['storage'];
      if (requested === undefined || before === undefined) return;
      if (compareQuantities(parseQuantity(requested), parseQuantity(before)) <= 0) return;
      if (old?.status?.phase !== 'Bound')
        throw refusal(attributes, 'Only bound persistent volume claims can be expanded');
      const name = old.metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION] ?? old.spec?.storageClassName ?? '';
      if (name !== '' && lister.get('', name)?.allowVolumeExpansion === true) return;
      throw refusal(
        attributes,
        'only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize',
      );
    },
  };
}
