/** Defines the table columns of volumes, claims and the storage group. */
import type {
  V1CSIDriverSpec,
  V1CSINodeSpec,
  V1PersistentVolumeClaimSpec,
  V1PersistentVolumeClaimStatus,
  V1PersistentVolumeSpec,
  V1PersistentVolumeStatus,
  V1StorageClass,
  V1VolumeAttachmentSpec,
  V1VolumeAttachmentStatus,
} from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf } from '../../columns/column.ts';
import { BETA_STORAGE_CLASS_ANNOTATION, DEFAULT_CLASS_ANNOTATIONS } from '../../../../api/meta/well-known-labels.ts';

const UNSET = '<unset>';
const SHORT_MODES: readonly (readonly [string, string])[] = [
  ['ReadWriteOnce', 'RWO'],
  ['ReadOnlyMany', 'ROX'],
  ['ReadWriteMany', 'RWX'],
  ['ReadWriteOncePod', 'RWOP'],
];

const boolean = { type: 'boolean' } as const;

function shortModes(modes: readonly string[] | undefined): string {
  return SHORT_MODES.flatMap(([mode, short]) => (modes?.includes(mode) === true ? [short] : [])).join(',');
}

const sizeOf = (capacity: object | undefined): string => (capacity as Record<string, string>)?.['storage'] ?? '';

function phaseOf(object: KubeObject, phase: string | undefined): string {
  return object.metadata.deletionTimestamp === undefined ? (phase ?? '') : 'Terminating';
}

type Volume = Kind<{ spec: V1PersistentVolumeSpec; status: V1PersistentVolumeStatus }>;

export const volumeColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Capacity', field('core.v1.PersistentVolumeSpec', 'capacity')),
    column('Access Modes', field('core.v1.PersistentVolumeSpec', 'accessModes')),
    column('Reclaim Policy', field('core.v1.PersistentVolumeSpec', 'persistentVolumeReclaimPolicy')),
    column('Status', field('core.v1.PersistentVolumeStatus', 'phase')),
    column('Claim', field('core.v1.PersistentVolumeSpec', 'claimRef')),
    column('StorageClass', 'StorageClass of the pv'),
    column('VolumeAttributesClass', 'VolumeAttributesClass of the pv'),
    column('Reason', field('core.v1.PersistentVolumeStatus', 'reason')),
    ageColumn,
    column('VolumeMode', field('core.v1.PersistentVolumeSpec', 'volumeMode'), { wide: true }),
  ],
  cells(object) {
    const { spec, status } = object as Volume;
    const claim = spec?.claimRef;
    return [
      nameOf(object),
      sizeOf(spec?.capacity),
      shortModes(spec?.accessModes),
      spec?.persistentVolumeReclaimPolicy ?? '',
      phaseOf(object, status?.phase),
      claim === undefined ? '' : `${claim.namespace ?? ''}/${claim.name ?? ''}`,
      spec?.storageClassName ?? object.metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION] ?? '',
      spec?.volumeAttributesClassName ?? UNSET,
      status?.reason ?? '',
      age(object),
      spec?.volumeMode ?? UNSET,
    ];
  },
};

type Claim = Kind<{ spec: V1PersistentVolumeClaimSpec; status: V1PersistentVolumeClaimStatus }>;

export const claimColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Status', field('core.v1.PersistentVolumeClaimStatus', 'phase')),
    column('Volume', field('core.v1.PersistentVolumeClaimSpec', 'volumeName')),
    column('Capacity', field('core.v1.PersistentVolumeClaimStatus', 'capacity')),
    column('Access Modes', field('core.v1.PersistentVolumeClaimStatus', 'accessModes')),
    column('StorageClass', 'StorageClass of the pvc'),
    column('VolumeAttributesClass', 'VolumeAttributesClass of the pvc'),
    ageColumn,
    column('VolumeMode', field('core.v1.PersistentVolumeClaimSpec', 'volumeMode'), { wide: true }),
  ],
  cells(object) {
    const { spec, status } = object as Claim;
    const isBound = (spec?.volumeName ?? '') !== '';
    return [
      nameOf(object),
      phaseOf(object, status?.phase),
      spec?.volumeName ?? '',
      isBound ? sizeOf(status?.capacity) || '0' : '',
      isBound ? shortModes(status?.accessModes) : '',
      object.metadata.annotations?.[BETA_STORAGE_CLASS_ANNOTATION] ?? spec?.storageClassName ?? '',
      spec?.volumeAttributesClassName ?? UNSET,
      age(object),
      spec?.volumeMode ?? UNSET,
    ];
  },
};

export const storageClassColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Provisioner', field('storage.v1.StorageClass', 'provisioner')),
    column('ReclaimPolicy', field('storage.v1.StorageClass', 'reclaimPolicy')),
    column('VolumeBindingMode', field('storage.v1.StorageClass', 'volumeBindingMode')),
    column('AllowVolumeExpansion', field('storage.v1.StorageClass', 'allowVolumeExpansion')),
    ageColumn,
  ],
  cells(object) {
    const one = object as Kind<V1StorageClass>;
    const marks = object.metadata.annotations ?? {};
    const isDefault = DEFAULT_CLASS_ANNOTATIONS.some((key) => marks[key] === 'true');
    return [
      isDefault ? `${nameOf(object)} (default)` : nameOf(object),
      one.provisioner ?? '',
      one.reclaimPolicy ?? 'Delete',
      one.volumeBindingMode ?? 'Immediate',
      one.allowVolumeExpansion === true,
      age(object),
    ];
  },
};

export const attributesClassColumns: TableColumns = {
  columns: [nameColumn, column('DriverName', field('storage.v1.VolumeAttributesClass', 'driverName')), ageColumn],
  cells: (object) => [nameOf(object), String(object['driverName'] ?? ''), age(object)],
};

export const driverColumns: TableColumns = {
  columns: [
    nameColumn,
    column('AttachRequired', field('storage.v1.CSIDriverSpec', 'attachRequired'), boolean),
    column('PodInfoOnMount', field('storage.v1.CSIDriverSpec', 'podInfoOnMount'), boolean),
    column('StorageCapacity', field('storage.v1.CSIDriverSpec', 'storageCapacity'), boolean),
    column('TokenRequests', field('storage.v1.CSIDriverSpec', 'tokenRequests')),
    column('RequiresRepublish', field('storage.v1.CSIDriverSpec', 'requiresRepublish'), boolean),
    column('Modes', field('storage.v1.CSIDriverSpec', 'volumeLifecycleModes')),
    ageColumn,
  ],
  cells(object) {
    const { spec } = object as Kind<{ spec: V1CSIDriverSpec }>;
    const audiences = (spec?.tokenRequests ?? []).map(({ audience }) => audience ?? '');
    return [
      nameOf(object),
      spec?.attachRequired ?? true,
      spec?.podInfoOnMount ?? false,
      spec?.storageCapacity ?? false,
      audiences.length === 0 ? UNSET : audiences.join(','),
      spec?.requiresRepublish ?? false,
      (spec?.volumeLifecycleModes ?? []).join(',') || '<none>',
      age(object),
    ];
  },
};

export const csiNodeColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Drivers', 'Drivers indicates the number of CSI drivers registered on the node', { type: 'integer' }),
    ageColumn,
  ],
  cells: (object) => [
    nameOf(object),
    ((object as Kind<{ spec: V1CSINodeSpec }>).spec?.drivers ?? []).length,
    age(object),
  ],
};

export const attachmentColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Attacher', field('storage.v1.VolumeAttachmentSpec', 'attacher'), { format: 'name' }),
    column('PV', field('storage.v1.VolumeAttachmentSource', 'persistentVolumeName')),
    column('Node', field('storage.v1.VolumeAttachmentSpec', 'nodeName')),
    column('Attached', field('storage.v1.VolumeAttachmentStatus', 'attached'), boolean),
    ageColumn,
  ],
  cells(object) {
    const { spec, status } = object as Kind<{ spec: V1VolumeAttachmentSpec; status: V1VolumeAttachmentStatus }>;
    return [
      nameOf(object),
      spec?.attacher ?? '',
      spec?.source?.persistentVolumeName ?? '',
      spec?.nodeName ?? '',
      status?.attached === true,
      age(object),
    ];
  },
};
