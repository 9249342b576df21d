/** Builds the names under which agents and the attach/detach controller refer to an attached volume of a CSI driver. */
import { createHash } from 'node:crypto';

/** Returns the name of the VolumeAttachment, by which a volume is attached at most once to a node. */
export function attachmentName(volumeHandle: string, driver: string, nodeName: string): string {
  return `csi-${createHash('sha256').update(`${volumeHandle}${driver}${nodeName}`).digest('hex')}`;
}

/** Returns the name of the volume in `status.volumesInUse` and `status.volumesAttached` of a node. */
export function uniqueVolumeName(driver: string, volumeHandle: string): string {
  return `kubernetes.io/csi/${driver}^${volumeHandle}`;
}
