/** The request of a pod or a persistent volume to a CSI driver, and the values that follow from it. Pure. */
import { createHash } from 'node:crypto';
import type { CSIDriver } from '../../../api/kinds/kinds.ts';
import type { Pod, Volume } from '../../base/model/pod.ts';
import type { PersistentVolume } from '../persistent.ts';
import type { VolumeStep } from '../volume-failure.ts';

/** A volume that a pod needs. The signal aborts the wait for the attachment and the call to the driver. */
export interface CsiMountRequest {
  readonly pod: Pod;
  /** The name of the volume in the pod. */
  readonly volumeName: string;
  readonly source: CsiSource;
  readonly readOnly: boolean;
  readonly signal: AbortSignal;
}

type CsiSource =
  | {
      readonly kind: 'persistent';
      readonly volume: PersistentVolume;
      /** The desired size of the file system, if the volume is larger than its claim's status. */
      readonly growBytes: number | undefined;
    }
  | { readonly kind: 'inline'; readonly volume: NonNullable<Volume['csi']> };

/** A published volume. */
export interface CsiMount {
  /** The path on the host that the pod's containers mount: a directory or a device. */
  readonly path: string;
  readonly isBlock: boolean;
  /** The agent has to change the group of the files to the pod's. */
  readonly setsGroup: boolean;
  /** The volume has to be published again periodically: the driver needs new tokens, or the volume can grow. */
  readonly refreshes: boolean;
  /** The driver has expanded the file system to the volume's size. */
  readonly grown: boolean;
}

/** The secret that a driver gets with a call. */
export interface SecretRef {
  readonly namespace: string;
  readonly name: string;
}

/** Returns the name of the driver; '' if the volume has none. */
export function driverOf(source: CsiSource): string {
  return source.kind === 'inline' ? source.volume.driver : (source.volume.spec?.csi?.driver ?? '');
}

/** Returns the name of the volume in directories of this node and in events. */
export function specNameOf({ source, volumeName }: CsiMountRequest): string {
  return source.kind === 'inline' ? volumeName : source.volume.metadata.name;
}

/** Returns the handle of the volume for its driver. Inline volumes have none, so it is derived from the pod and the volume. */
export function handleOf({ pod, source, volumeName }: CsiMountRequest): string {
  if (source.kind === 'persistent') return source.volume.spec?.csi?.volumeHandle ?? '';
  return `csi-${createHash('sha256').update(`${pod.metadata.uid}${volumeName}`).digest('hex')}`;
}

/** Whether containers get the volume as a device. */
export function isBlock(source: CsiSource): boolean {
  return source.kind === 'persistent' && source.volume.spec?.volumeMode === 'Block';
}

/** Returns the filesystem that the volume asks for; '' for the driver's default. */
export function fsTypeOf(source: CsiSource): string {
  return (source.kind === 'inline' ? source.volume.fsType : source.volume.spec?.csi?.fsType) ?? '';
}

/** Returns the access modes of the volume. An inline volume is used by one pod. */
export function accessModesOf(source: CsiSource): readonly string[] {
  return source.kind === 'inline' ? ['ReadWriteOnce'] : (source.volume.spec?.accessModes ?? []);
}

/** Returns the attributes that the driver gets as the volume context. */
export function attributesOf(source: CsiSource): Readonly<Record<string, string>> {
  return (source.kind === 'inline' ? source.volume.volumeAttributes : source.volume.spec?.csi?.volumeAttributes) ?? {};
}

/** Returns the mount options of a persistent volume. Inline volumes have none. */
export function mountOptionsOf(source: CsiSource): readonly string[] {
  return source.kind === 'inline' ? [] : (source.volume.spec?.mountOptions ?? []);
}

/**
 * Returns the secret of one call, or `undefined` if it has none. Inline volumes have one for publishing, in the pod's
 * namespace.
 */
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

const LIFECYCLE = 'kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode';

/** Returns the step in which the kubelet finds that the driver of a volume is not registered, and its words for that. */
export function missingDriverStep(source: CsiSource): { readonly step: VolumeStep; readonly words: string } {
  if (source.kind === 'inline')
    return { step: 'MountVolume.SetUp', words: 'kubernetes.io/csi: mounter.SetUpAt failed to get CSI client' };
  if (isBlock(source))
    return {
      step: 'MapVolume.SetUpDevice',
      words: 'kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client',
    };
  const words = 'kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient';
  return { step: 'MountVolume.MountDevice', words };
}

/**
 * Throws if the driver does not declare that it serves inline volumes. A driver must declare it, because it may trust the
 * attributes of persistent volumes, which authors of pods cannot choose.
 */
export function checkLifecycle(driver: string, object: CSIDriver | undefined): void {
  if (object === undefined)
    throw new Error(`${LIFECYCLE}: volume mode "Ephemeral" not supported by driver ${driver} (no CSIDriver object)`);
  const modes = object.spec?.volumeLifecycleModes ?? ['Persistent'];
  if (!modes.includes('Ephemeral'))
    throw new Error(
      `${LIFECYCLE}: volume mode "Ephemeral" not supported by driver ${driver} (only supports ${JSON.stringify(modes)})`,
    );
}
