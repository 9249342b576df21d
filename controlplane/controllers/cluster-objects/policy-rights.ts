/**
 * Lets nodes read all namespaces and pods once a network policy exists: to enforce it, they need the labels and addresses of
 * the peers.
 *
 * The right stays when the last policy is deleted, because nodes still have rules that follow the pods.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Client } from '../../../api/client/client.ts';
import type { Clock } from '../../../api/machinery/clock.ts';
import type { Informers } from '../../../api/client/informer.ts';
import { clusterRoleBindings, clusterRoles, networkPolicies, RBAC_GROUP } from '../../../api/client/resources.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { createIfMissing } from './existing-objects.ts';
import { NODES_GROUP } from '../../../api/meta/system-users.ts';

/** The name of both the ClusterRole and its binding. */
export const POLICY_PEERS_ROLE = 'orchlet:network-policy-peers';
const NAME = POLICY_PEERS_ROLE;

interface PolicyRightsOptions {
  readonly client: Client;
  readonly informers: Informers;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Watches the policies until it is closed. Changes of an administrator stay. */
export function keepPolicyRights({ client, informers, clock, logger }: PolicyRightsOptions): {
  close(): Promise<void>;
} {
  const policies = informers.for(networkPolicies);
  const ending = new AbortController();
  const loop = new WakeableLoop({
    clock,
    onError: (error) => logger.warn({ err: error }, 'Cannot let nodes read the peers of network policies, retrying'),
  });
  policies.addHandler({ add: () => loop.wake() });
  const running = loop.run(ending.signal, async () => {
    if (policies.size > 0) await grant(client);
    return Infinity;
  });
  background(running, { logger, what: 'Following network policies', signal: ending.signal });
  return {
    async close() {
      ending.abort();
      await running;
    },
  };
}

async function grant(client: Client): Promise<void> {
  await createIfMissing(client, clusterRoles, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'ClusterRole',
    metadata: { name: NAME },
    rules: [{ apiGroups: [''], resources: ['namespaces', 'pods'], verbs: ['get', 'list', 'watch'] }],
  });
  await createIfMissing(client, clusterRoleBindings, {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'ClusterRoleBinding',
    metadata: { name: NAME },
    roleRef: { apiGroup: RBAC_GROUP, kind: 'ClusterRole', name: NAME },
    subjects: [{ kind: 'Group', apiGroup: RBAC_GROUP, name: NODES_GROUP }],
  });
}
