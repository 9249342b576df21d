/**
 * Waits until a volume is attached to this node: the node reports that it uses the volume, the attach/detach controller creates
 * a VolumeAttachment, and the driver's attacher sets its status. The driver's node part gets the attacher's metadata.
 */
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Client } from '../../../api/client/client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { VolumeAttachment } from '../../../api/kinds/kinds.ts';
import { volumeAttachments } from '../../../api/client/resources.ts';
import { isNotFound, isStatusError } from '../../../api/meta/status-error.ts';
import { VolumeLimitError } from '../volume-failure.ts';

/** The code of gRPC for a node without room for another volume. */
const RESOURCE_EXHAUSTED = 8;
const FIRST_POLL_MS = 250;
const MAX_POLL_MS = 4_000;

interface AttachmentWait {
  readonly client: Client;
  readonly clock: Clock;
  readonly name: string;
  /** Whether the node's status reports the volume as in use. From then on no controller detaches it. */
  readonly isReported: () => boolean;
  /** Reads from the driver how many volumes the node can have. Absent if the driver wants no updates of this number. */
  readonly updateLimit: (() => Promise<void>) | undefined;
  readonly signal: AbortSignal;
}

/**
 * Waits until the volume is attached, and returns the attacher's metadata for the driver. Throws if the attachment failed or is
 * being deleted, and when the signal aborts. Throws a `VolumeLimitError` if the node has too many volumes and `updateLimit` is
 * given.
 */
export async function awaitAttachment(wait: AttachmentWait): Promise<Readonly<Record<string, string>>> {
  const { client, clock, name, isReported, updateLimit, signal } = wait;
  const backoff = new Backoff({ firstMs: FIRST_POLL_MS, longestMs: MAX_POLL_MS });
  for (;;) {
    const attachment = isReported() ? await find(client, name, signal) : undefined;
    if (attachment?.metadata.deletionTimestamp !== undefined) throw new Error('volume attachment is being deleted');
    if (attachment?.status?.attached === true) return attachment.status.attachmentMetadata ?? {};
    const problem = attachment?.status?.attachError;
    if (problem?.errorCode === RESOURCE_EXHAUSTED && updateLimit !== undefined) {
      await updateLimit();
      throw new VolumeLimitError(problem.message);
    }
    if (problem?.message !== undefined) throw new Error(problem.message);
    await clock.sleep(backoff.next(), signal);
  }
}

async function find(client: Client, name: string, signal: AbortSignal): Promise<VolumeAttachment | undefined> {
  try {
    return (await client.get(volumeAttachments, '', name, { signal })) as VolumeAttachment;
  } catch (error) {
    // The node authorizer forbids reading an attachment that does not exist yet.
    if (isNotFound(error) || isStatusError(error, 'Forbidden')) return undefined;
    throw error;
  }
}
