/** Creates the checkpoints of `--pod-checkpoints`, from which pods start while the API server is not available. */
import { join } from 'node:path';
import type { Client } from '../../api/client/client.ts';
import { CheckpointStore } from '../pods/checkpoints/checkpoint-store.ts';
import { LastKnownClient } from '../pods/checkpoints/last-known-client.ts';
import { PodCheckpoints } from '../pods/checkpoints/pod-checkpoints.ts';
import type { NodeManager } from '../node/status/node-manager.ts';
import type { Base } from './base.ts';
import type { Part } from './lifecycle.ts';

/** The part that owns the stored responses. It writes what is pending when it is closed. */
export interface Checkpoints extends Part {
  readonly pods: PodCheckpoints;
  /** The client for config maps, secrets, claims, volumes and tokens. */
  readonly client: Client;
}

/**
 * Creates the store of responses and the client that reads from it. Returns `undefined` without an API server or with
 * `--pod-checkpoints=false`.
 */
export function createCheckpoints(
  { flags, clock, logger, rootDirectory }: Base,
  client: Client | undefined,
): Checkpoints | undefined {
  if (client === undefined || !flags.podCheckpoints) return undefined;
  const store = new CheckpointStore({ directory: join(rootDirectory, 'last-known'), clock, logger });
  return {
    pods: new PodCheckpoints({ store, logger }),
    client: new LastKnownClient({ client, store, clock }),
    close: () => store.close(),
  };
}

/** Restores the labels, taints and pod CIDRs of the node, which hold until the API server sends the node. */
export async function restoreNode(node: NodeManager, checkpoints: Checkpoints | undefined): Promise<void> {
  if (checkpoints === undefined) return;
  const last = await checkpoints.pods.node();
  if (last?.metadata?.name === node.name) node.restore(last);
}
