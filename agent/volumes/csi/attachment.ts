/**
 * Waits until a volume is attached to this node: the node says that it uses it, the attach/detach controller makes a
 * VolumeAttachment, the driver's attacher says that it is done. What the attacher tells is given to the driver's node part.
 */
import { createHash } from 'node:crypto';
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Client } from '../../../api/machinery/client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { VolumeAttachment } from '../../../api/machinery/kinds.ts';
import { volumeAttachments } from '../../../api/machinery/resources.ts';
import { isNotFound, isStatusError } from '../../../api/meta/status-error.ts';

const FIRST_LOOK_MS = 250;
const LONGEST_LOOK_MS = 4_000;

/** As the attach/detach controller names it. */
export function attachmentName(volumeHandle: string, driver: string, nodeName: string): string {
  return `csi-${createHash('sha256').update(`${volumeHandle}${driver}${nodeName}`).digest('hex')}`;
}

/** The volume as `status.volumesInUse` and `status.volumesAttached` of a node name it. */
export function uniqueVolumeName(driver: string, volumeHandle: string): string {
  return `kubernetes.io/csi/${driver}^${volumeHandle}`;
}

export interface AttachmentWait {
  readonly client: Client;
  readonly clock: Clock;
  readonly name: string;
  /** The node's status says that the volume is in use: from then on nobody detaches it. */
  readonly isReported: () => boolean;
  readonly signal: AbortSignal;
}

/** What the attacher left for the driver. Throws when the attachment failed or is on its way out. */
export async function awaitAttachment(wait: AttachmentWait): Promise<Readonly<Record<string, string>>> {
  const { client, clock, name, isReported, signal } = wait;
  const backoff = new Backoff({ firstMs: FIRST_LOOK_MS, longestMs: LONGEST_LOOK_MS });
  for (;;) {
    const attachment = isReported() ? await find(client, name, signal) : undefined;
    if (attachment?.metadata.deletionTimestamp !== undefined) throw new Error('volume attachment is being deleted');
    if (attachment?.status?.attached === true) return attachment.status.attachmentMetadata ?? {};
    const problem = attachment?.status?.attachError?.message;
    if (problem !== undefined) throw new Error(problem);
    await clock.sleep(backoff.next(), signal);
  }
}

async function find(client: Client, name: string, signal: AbortSignal): Promise<VolumeAttachment | undefined> {
  try {
    return (await client.get(volumeAttachments, '', name, { signal })) as VolumeAttachment;
  } catch (error) {
    // A node may not even ask for one that does not exist yet.
    if (isNotFound(error) || isStatusError(error, 'Forbidden')) return undefined;
    throw error;
  }
}
