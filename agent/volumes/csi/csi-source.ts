/** What a pod or a persistent volume asks of a CSI driver: the request of the volume manager, and what follows from it. Pure. */
import { createHash } from 'node:crypto';
import type { CSIDriver } from '../../../api/machinery/kinds.ts';
import type { Pod } from '../../model/core-types.ts';
import type { Volume } from '../payload.ts';
import type { PersistentVolume } from '../persistent.ts';

export interface CsiMountRequest {
  readonly pod: Pod;
  /** As the pod calls it. */
  readonly volumeName: string;
  readonly source: CsiSource;
  readonly readOnly: boolean;
  readonly signal: AbortSignal;
}

export type CsiSource =
  | {
      readonly kind: 'persistent';
      readonly volume: PersistentVolume;
      /** The volume has become larger than what its claim says: the size that the file system shall have. */
      readonly growBytes: number | undefined;
    }
  | { readonly kind: 'inline'; readonly volume: NonNullable<Volume['csi']> };

export interface CsiMount {
  /** Where the pod's containers find it on the host: a directory, or a device. */
  readonly path: string;
  readonly isBlock: boolean;
  /** The agent is to give the files to the pod's group. */
  readonly setsGroup: boolean;
  /** To be mounted again from time to time: the driver wants fresh tokens, or the volume may grow. */
  readonly refreshes: boolean;
  /** The driver has grown the file system to the volume's size. */
  readonly grown: boolean;
}

export interface SecretRef {
  readonly namespace: string;
  readonly name: string;
}

export function driverOf(source: CsiSource): string {
  return source.kind === 'inline' ? source.volume.driver : (source.volume.spec?.csi?.driver ?? '');
}

/** The name of the volume on this node's disk and in events. */
export function specNameOf({ source, volumeName }: CsiMountRequest): string {
  return source.kind === 'inline' ? volumeName : source.volume.metadata.name;
}

/** Inline volumes have no handle: one is made of the pod and the volume. */
export function handleOf({ pod, source, volumeName }: CsiMountRequest): string {
  if (source.kind === 'persistent') return source.volume.spec?.csi?.volumeHandle ?? '';
  return `csi-${createHash('sha256').update(`${pod.metadata.uid}${volumeName}`).digest('hex')}`;
}

export function isBlock(source: CsiSource): boolean {
  return source.kind === 'persistent' && source.volume.spec?.volumeMode === 'Block';
}

export function fsTypeOf(source: CsiSource): string {
  return (source.kind === 'inline' ? source.volume.fsType : source.volume.spec?.csi?.fsType) ?? '';
}

export function accessModesOf(source: CsiSource): readonly string[] {
  return source.kind === 'inline' ? ['ReadWriteOnce'] : (source.volume.spec?.accessModes ?? []);
}

export function attributesOf(source: CsiSource): Readonly<Record<string, string>> {
  return (source.kind === 'inline' ? source.volume.volumeAttributes : source.volume.spec?.csi?.volumeAttributes) ?? {};
}

export function mountOptionsOf(source: CsiSource): readonly string[] {
  return source.kind === 'inline' ? [] : (source.volume.spec?.mountOptions ?? []);
}

/** The secret of one call; inline volumes have one for publishing, in the pod's namespace. */
export function secretRefOf(
  { pod, source }: CsiMountRequest,
  key: 'nodeStageSecretRef' | 'nodePublishSecretRef' | 'nodeExpandSecretRef',
): SecretRef | undefined {
  if (source.kind === 'inline') {
    const name = key === 'nodePublishSecretRef' ? source.volume.nodePublishSecretRef?.name : undefined;
    return name === undefined ? undefined : { namespace: pod.metadata.namespace, name };
  }
  const reference = source.volume.spec?.csi?.[key];
  return reference?.name === undefined ? undefined : { namespace: reference.namespace ?? '', name: reference.name };
}

/** A driver must say that it serves inline volumes: it may trust persistent ones more. */
export function checkLifecycle(driver: string, object: CSIDriver | undefined): void {
  if (object === undefined)
    throw new Error(`volume mode "Ephemeral" not supported by driver ${driver} (no CSIDriver object)`);
  const modes = object.spec?.volumeLifecycleModes ?? ['Persistent'];
  if (!modes.includes('Ephemeral'))
    throw new Error(
      `volume mode "Ephemeral" not supported by driver ${driver} (only supports ${JSON.stringify(modes)})`,
    );
}
