/** What the agent keeps of the API server's answers, so that its pods start without it; by `--pod-checkpoints`. */
import { join } from 'node:path';
import type { Client } from '../../api/machinery/client.ts';
import { CheckpointStore } from '../pods/checkpoints/checkpoint-store.ts';
import { LastKnownClient } from '../pods/checkpoints/last-known-client.ts';
import { PodCheckpoints } from '../pods/checkpoints/pod-checkpoints.ts';
import type { NodeManager } from '../node/status/node-manager.ts';
import type { Base, Closer } from './base.ts';

export interface Checkpoints {
  readonly pods: PodCheckpoints;
  /** For config maps, secrets, claims, volumes and tokens. */
  readonly client: Client;
}

export function createCheckpoints(
  { flags, clock, logger, rootDirectory }: Base,
  client: Client | undefined,
  closers: Closer[],
): Checkpoints | undefined {
  if (client === undefined || !flags.podCheckpoints) return undefined;
  const store = new CheckpointStore({ directory: join(rootDirectory, 'last-known'), clock, logger });
  closers.push(() => store.close());
  return { pods: new PodCheckpoints({ store, logger }), client: new LastKnownClient({ client, store, clock }) };
}

/** The node's labels and address range of before, until the API server tells them; stored as they come. */
export async function restoreNode(node: NodeManager, checkpoints: Checkpoints | undefined): Promise<void> {
  if (checkpoints === undefined) return;
  const last = await checkpoints.pods.node();
  if (last?.metadata?.name === node.name) node.restore(last);
  node.onPodCidrs(() => checkpoints.pods.saveNode(node.node()));
}
