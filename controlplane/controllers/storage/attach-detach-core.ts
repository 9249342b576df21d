/**
 * Decides which volumes of CSI drivers must be attached to a node (the volumes of its pods, if the driver attaches volumes),
 * and whether an attachment to another node excludes that. Pure.
 */
import type { Node, PersistentVolume, Pod, VolumeAttachment } from '../../../api/kinds/kinds.ts';
import { isPodFinished } from '../pod-state.ts';
import { OUT_OF_SERVICE_TAINT } from '../../../api/meta/well-known-labels.ts';
import { attachmentName, uniqueVolumeName } from '../../../api/kinds/attached-volumes.ts';

/** A volume that pods of a node need there. */
export interface WantedAttachment {
  /** The name of the VolumeAttachment. */
  readonly name: string;
  readonly driver: string;
  readonly volume: PersistentVolume;
  readonly pods: readonly Pod[];
}

/** How volumes and drivers are found. */
export interface StorageLookup {
  /** The volume that is bound to the claim. */
  readonly volumeOfClaim: (
    namespace: string,
    claimName: string,
    owner: Pod | undefined,
  ) => PersistentVolume | undefined;
  readonly attaches: (driver: string) => boolean;
}

/** Returns the name of a volume in a node's `volumesInUse` and `volumesAttached`. */
export function nameOnNode(volume: PersistentVolume): string {
  const { driver = '', volumeHandle = '' } = volume.spec?.csi ?? {};
  return uniqueVolumeName(driver, volumeHandle);
}

interface ClaimOfPod {
  readonly name: string;
  readonly owner: Pod | undefined;
}

/** Returns the claims of a pod's volumes. The claim of an ephemeral volume must be owned by the pod. */
export function claimsOf(pod: Pod): ClaimOfPod[] {
  return (pod.spec?.volumes ?? []).flatMap((volume): ClaimOfPod[] => {
    if (volume.persistentVolumeClaim !== undefined)
      return [{ name: volume.persistentVolumeClaim.claimName, owner: undefined }];
    return volume.ephemeral === undefined ? [] : [{ name: `${pod.metadata.name}-${volume.name}`, owner: pod }];
  });
}

/**
 * Returns the wanted attachments by name. Finished pods need no volume, and drivers that do not attach are left out.
 */
export function wantedAttachments(
  nodeName: string,
  pods: readonly Pod[],
  lookup: StorageLookup,
): Map<string, WantedAttachment> {
  const wanted = new Map<string, WantedAttachment>();
  for (const pod of pods) {
    if (isPodFinished(pod)) continue;
    for (const claim of claimsOf(pod)) {
      const volume = lookup.volumeOfClaim(pod.metadata.namespace ?? '', claim.name, claim.owner);
      const { driver, volumeHandle } = volume?.spec?.csi ?? {};
      if (volume === undefined || driver === undefined || volumeHandle === undefined || !lookup.attaches(driver))
        continue;
      const name = attachmentName(volumeHandle, driver, nodeName);
      wanted.set(name, { name, driver, volume, pods: [...(wanted.get(name)?.pods ?? []), pod] });
    }
  }
  return wanted;
}

/**
 * Returns an attachment of the volume to another node, which excludes an attachment to this one. Returns `undefined` if there
 * is none, or if several nodes may use the volume.
 */
export function exclusiveElsewhere(
  volume: PersistentVolume,
  nodeName: string,
  attachments: readonly VolumeAttachment[],
): VolumeAttachment | undefined {
  const modes = volume.spec?.accessModes ?? [];
  if (modes.some((mode) => mode === 'ReadWriteMany' || mode === 'ReadOnlyMany')) return undefined;
  return attachments.find(
    ({ spec }) => spec.nodeName !== nodeName && spec.source.persistentVolumeName === volume.metadata.name,
  );
}

/** Whether the node cannot report that it has unmounted a volume: it does not exist, or has the out-of-service taint. */
export function isOutOfService(node: Node | undefined): boolean {
  return node === undefined || (node.spec?.taints ?? []).some((taint) => taint.key === OUT_OF_SERVICE_TAINT);
}

/** Whether the condition Ready is True. */
export function isHealthy(node: Node): boolean {
  return (node.status?.conditions ?? []).some(({ type, status }) => type === 'Ready' && status === 'True');
}
