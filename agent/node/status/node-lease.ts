/**
 * Keeps the node's Lease in the namespace kube-node-lease: renews it at a quarter of its duration, and recreates it after it
 * was deleted. The node owns the lease, so that the lease is deleted with the node.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import type { Client } from '../../../api/client/client.ts';
import { type Clock, formatMicroTime } from '../../../api/machinery/clock.ts';
import { leases } from '../../../api/client/resources.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import type { KubeObject } from '../../../api/meta/object.ts';
import { isConflict, isNotFound } from '../../../api/meta/status-error.ts';
import { NODE_LEASE_NAMESPACE } from '../../../api/meta/system-namespaces.ts';

interface NodeLeaseOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly nodeName: string;
  readonly durationSeconds: number;
  /** The uid of the registered node; `undefined` until it is registered. */
  readonly nodeUid: () => string | undefined;
  /** Returns a number from 0 to below 1. */
  readonly random: () => number;
}

const REGISTRATION_POLL_MS = 100;
/** The interval of renewals as a share of the lease's duration, and the share of the interval that is added at random. */
const RENEWAL = { share: 0.25, jitter: 0.04 };
const RETRY = { firstMs: 400, longestMs: 12_800 };
/** The number of consecutive failures at which a warning is logged, once. */
const FAILURES_BEFORE_WARNING = 5;

/** Renews the lease until the signal aborts. Never rejects. */
export async function keepNodeLease(options: NodeLeaseOptions, signal: AbortSignal): Promise<void> {
  const { clock, logger, durationSeconds, nodeUid, random } = options;
  const intervalMs = durationSeconds * 1000 * RENEWAL.share;
  let lease: KubeObject | undefined;
  const loop = new WakeableLoop({
    clock,
    backoff: new Backoff({ ...RETRY, longestMs: Math.min(RETRY.longestMs, intervalMs) }),
    onError: (error, failures) => {
      lease = undefined;
      if (failures === FAILURES_BEFORE_WARNING)
        logger.warn({ node: options.nodeName, err: error }, 'Cannot renew the lease of the node, retrying');
    },
  });
  await loop.run(signal, async () => {
    const uid = nodeUid();
    if (uid === undefined) return REGISTRATION_POLL_MS;
    lease = await renew(options, uid, lease);
    return intervalMs * (1 + RENEWAL.jitter * random());
  });
}

async function renew(
  { client, clock, nodeName, durationSeconds }: NodeLeaseOptions,
  nodeUid: string,
  last: KubeObject | undefined,
): Promise<KubeObject> {
  const spec = {
    holderIdentity: nodeName,
    leaseDurationSeconds: durationSeconds,
    renewTime: formatMicroTime(clock.now()),
  };
  if (last !== undefined) {
    try {
      return await client.update(leases, { ...last, spec });
    } catch (error) {
      if (!isConflict(error) && !isNotFound(error)) throw error;
    }
  }
  try {
    const current = await client.get(leases, NODE_LEASE_NAMESPACE, nodeName);
    return await client.update(leases, { ...current, spec });
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
  return client.create(leases, NODE_LEASE_NAMESPACE, {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: {
      name: nodeName,
      namespace: NODE_LEASE_NAMESPACE,
      ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: nodeName, uid: nodeUid }],
    },
    spec,
  });
}
