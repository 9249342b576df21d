/**
 * Persistent volume claims on this node: finds the volume of a claim, and reports that its file system was expanded.
 */
import type { Client } from '../../api/client/client.ts';
import type { PersistentVolumeClaim } from '../../api/kinds/kinds.ts';
import { persistentVolumeClaims, persistentVolumes } from '../../api/client/resources.ts';
import { initAndMainContainers } from '../../api/kinds/pod-containers.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { compareQuantities, parseQuantity, wholeUnits } from '../../api/meta/quantity.ts';
import type { V1PersistentVolume } from '@kubernetes/client-node';
import type { Container, Pod } from '../base/model/pod.ts';
import type { Wire } from '../base/model/wire.ts';
import { VolumeNotProcessedError } from './volume-failure.ts';

/** A `v1` PersistentVolume with a name. */
export type PersistentVolume = Omit<Wire<V1PersistentVolume>, 'metadata'> & {
  metadata: { name: string; annotations?: Record<string, string> };
};

/** A claim with the volume that it is bound to. */
export interface BoundVolume {
  readonly volume: PersistentVolume;
  readonly claim: PersistentVolumeClaim;
  readonly readOnly: boolean;
}

/** A claim that a pod names. */
export interface ClaimReference {
  readonly name: string;
  readonly readOnly: boolean;
  /** The claim of a generic ephemeral volume must belong to this pod; another claim with its name is not used. */
  readonly isOwnedByPod: boolean;
}

/** Returns why a claim cannot be used, in the words of the kubelet, or `undefined` if it can. */
function unusableBecause({ metadata, spec, status }: PersistentVolumeClaim): string | undefined {
  const isProtected = metadata.finalizers?.includes('kubernetes.io/pvc-protection') === true;
  if (metadata.deletionTimestamp !== undefined && !isProtected) return 'PVC is being deleted';
  if (status?.phase !== 'Bound') return 'PVC is not bound';
  return spec?.volumeName === undefined || spec.volumeName === '' ? 'PVC has empty pvc.Spec.VolumeName' : undefined;
}

/**
 * Returns the volume of a claim that a pod refers to. Throws a `VolumeNotProcessedError` if the claim cannot be used, or if
 * its volume belongs to another claim. Throws another error if there is no API server or the volume cannot be read.
 */
export async function resolveClaim(
  client: Client | undefined,
  pod: Pod,
  reference: ClaimReference,
): Promise<BoundVolume> {
  if (client === undefined) throw new Error('persistent volume claims need an API server');
  const namespace = pod.metadata.namespace;
  const subject = `PVC ${namespace}/${reference.name}`;
  let claim: PersistentVolumeClaim;
  try {
    claim = (await client.get(persistentVolumeClaims, namespace, reference.name)) as PersistentVolumeClaim;
  } catch (error) {
    throw new VolumeNotProcessedError(
      `error processing ${subject}: failed to fetch PVC from API server: ${errorMessage(error)}`,
      { cause: error },
    );
  }
  const owner = claim.metadata.ownerReferences?.find((entry) => entry.controller === true);
  if (reference.isOwnedByPod && owner?.uid !== pod.metadata.uid)
    throw new VolumeNotProcessedError(
      `${subject} was not created for pod ${namespace}/${pod.metadata.name} (pod is not owner)`,
    );
  const volumeName = claim.spec?.volumeName ?? '';
  const problem = unusableBecause(claim);
  if (problem !== undefined) throw new VolumeNotProcessedError(`error processing ${subject}: ${problem}`);
  const volume = (await client.get(persistentVolumes, '', volumeName)) as unknown as PersistentVolume;
  if (volume.spec?.claimRef?.uid !== claim.metadata.uid) {
    throw new VolumeNotProcessedError(`PV ${volumeName} is not bound to ${subject}: its claimRef has another UID`);
  }
  const readOnly = reference.readOnly || volume.spec?.accessModes?.every((mode) => mode === 'ReadOnlyMany') === true;
  return { volume, claim, readOnly };
}

/** Checks that containers use a block volume as a device, and any other one as a directory. Throws if they do not. */
export function checkVolumeMode(pod: Pod, volumeName: string, volumeMode: string | undefined): void {
  const containers: readonly Container[] = initAndMainContainers(pod.spec);
  const asDirectory = containers.some((entry) => entry.volumeMounts?.some(({ name }) => name === volumeName));
  const asDevice = containers.some((entry) => entry.volumeDevices?.some(({ name }) => name === volumeName));
  if (volumeMode === 'Block' && asDirectory)
    throw new VolumeNotProcessedError(`volume ${volumeName} has volumeMode Block, but is specified in volumeMounts`);
  if (volumeMode !== 'Block' && asDevice)
    throw new VolumeNotProcessedError(
      `volume ${volumeName} has volumeMode Filesystem, but is specified in volumeDevices`,
    );
}

/**
 * Returns the volume's size in bytes if it exceeds that of the claim's status, because the file system still has the smaller
 * size. Returns `undefined` if the file system need not grow, or if one of the sizes is unknown.
 */
export function sizeToGrow({ volume, claim }: BoundVolume): number | undefined {
  const size = volume.spec?.capacity?.['storage'];
  const reported = claim.status?.capacity?.['storage'];
  if (size === undefined || reported === undefined) return undefined;
  if (compareQuantities(parseQuantity(size), parseQuantity(reported)) <= 0) return undefined;
  return Number(wholeUnits(parseQuantity(size)));
}

/** Reports that the file system has the volume's size, which completes the expansion. */
export async function reportGrown(client: Client, { volume, claim }: BoundVolume): Promise<void> {
  const ended = (claim.status?.conditions ?? []).filter(
    ({ type }) => type === 'FileSystemResizePending' || type === 'Resizing',
  );
  const status = {
    capacity: { storage: volume.spec?.capacity?.['storage'] },
    ...(ended.length === 0 ? {} : { conditions: ended.map(({ type }) => ({ type, $patch: 'delete' })) }),
    ...(claim.status?.allocatedResourceStatuses === undefined ? {} : { allocatedResourceStatuses: { storage: null } }),
  };
  const { namespace = '', name = '' } = claim.metadata;
  await client.patch(persistentVolumeClaims, namespace, name, {
    type: 'strategic',
    body: { status },
    subresource: 'status',
  });
}
