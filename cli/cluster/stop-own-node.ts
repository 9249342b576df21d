/**
 * Stops the node of `orchlet up`: cordons it, deletes its pods and waits for them. It is uncordoned at the end, or by the next
 * start if the stop was interrupted.
 */
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/client/client.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { nodes, pods } from '../../api/client/resources.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound, tolerate } from '../../api/meta/status-error.ts';
import { MIRROR_ANNOTATION } from '../../api/kinds/pod-annotations.ts';

/** Leaves time to close everything, and a private Docker daemon, within 15 s. */
const STOP_WITHIN_MS = 8000;
const STOP_GRACE_SECONDS = 3;

/**
 * The pods of daemon sets tolerate unschedulable nodes; this taint keeps them away while the node stops. Its value records
 * whether the node was cordoned before.
 */
const STOPPING_TAINT = 'orchlet.local/stopping';

interface NodeSpec {
  readonly unschedulable?: boolean;
  readonly taints?: readonly { readonly key: string; readonly value?: string; readonly effect: string }[];
}

interface StopOptions {
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Deletes the pods of this node with a short grace period, and waits at most eight seconds for them; the node accepts no new
 * ones in the meantime. Never rejects: a failure is logged.
 */
export async function stopPods(client: Client, nodeName: string, { clock, logger }: StopOptions): Promise<void> {
  const fieldSelector = `spec.nodeName=${nodeName}`;
  const deleted = new Set<string>();
  try {
    await closeNode(client, nodeName);
    const deadline = clock.monotonic() + STOP_WITHIN_MS;
    for (;;) {
      const remainingPods = (await client.list(pods, { fieldSelector })).items.filter(
        (pod) => pod.metadata.annotations?.[MIRROR_ANNOTATION] === undefined,
      );
      if (remainingPods.length === 0 || clock.monotonic() >= deadline) break;
      await Promise.all(remainingPods.map((pod) => deleteSoon(client, pod, deleted)));
      await clock.sleep(100);
    }
  } catch (error) {
    logger.warn({ err: errorMessage(error) }, 'Not all pods could be stopped');
  }
}

/** Deletes each pod once. The grace period of a pod that is already terminating is shortened. */
async function deleteSoon(client: Client, { metadata }: KubeObject, deleted: Set<string>): Promise<void> {
  if (deleted.has(metadata.uid ?? '')) return;
  deleted.add(metadata.uid ?? '');
  await tolerate(
    client.delete(pods, metadata.namespace ?? '', metadata.name ?? '', {
      gracePeriodSeconds: STOP_GRACE_SECONDS,
    }),
    isNotFound,
  );
}

async function closeNode(client: Client, name: string): Promise<void> {
  const { unschedulable = false, taints = [] } = await nodeSpec(client, name);
  const taint = { key: STOPPING_TAINT, value: unschedulable ? 'cordoned' : 'open', effect: 'NoSchedule' };
  const others = taints.filter(({ key }) => key !== STOPPING_TAINT);
  await client.patch(nodes, '', name, {
    type: 'strategic',
    body: { spec: { unschedulable: true, taints: [...others, taint] } },
  });
}

/** Uncordons the node, unless it was cordoned before the stop. Also called at the start, since a stop may be interrupted. */
export async function openNode(client: Client, name: string): Promise<void> {
  const { taints = [] } = await nodeSpec(client, name);
  const taint = taints.find(({ key }) => key === STOPPING_TAINT);
  if (taint === undefined) return;
  const others = taints.filter(({ key }) => key !== STOPPING_TAINT);
  const unschedulable = taint.value === 'cordoned' ? true : null;
  await client.patch(nodes, '', name, { type: 'strategic', body: { spec: { unschedulable, taints: others } } });
}

const nodeSpec = async (client: Client, name: string): Promise<NodeSpec> =>
  ((await client.get(nodes, '', name)) as { spec?: NodeSpec }).spec ?? {};
