/**
 * Implements `--network-policy`: starts the enforcement of network policies on this node, or removes the rules of an earlier
 * run if it is off. With `auto`, the kind of the cluster decides: one whose nodes provide the services themselves has no
 * network plugin that enforces policies.
 */
import { policyTable } from '../network/policy/policy-table.ts';
import { background } from '../../api/machinery/background.ts';
import { Backoff } from '../../api/machinery/backoff.ts';
import type { Client } from '../../api/client/client.ts';
import { untilAborted } from '../../api/machinery/clock.ts';
import { WakeableLoop } from '../../api/machinery/wakeable-loop.ts';
import type { Informers } from '../../api/client/informer.ts';
import { remoteInformers } from '../../api/client/remote-informers.ts';
import type { SelfSubjectAccessReview } from '../../api/kinds/kinds.ts';
import { namespaces, networkPolicies, pods, selfSubjectAccessReviews } from '../../api/client/resources.ts';
import type { NodeObject } from '../base/model/node.ts';
import type { Pod } from '../base/model/pod.ts';
import { setKernelParameters } from '../network/kernel-parameters.ts';
import { hostNftables } from '../network/nftables.ts';
import { PolicyEnforcer } from '../network/policy/policy-enforcer.ts';
import type { PodCheckpoints } from '../pods/checkpoints/pod-checkpoints.ts';
import type { PodNetworkGate } from '../runtime/kuberuntime/kube-runtime.ts';
import type { Base } from './base.ts';
import type { AgentEvents } from './events.ts';
import type { Closing, Part } from './lifecycle.ts';
import { SOURCE_ANNOTATION } from '../../api/kinds/pod-annotations.ts';

interface NetworkPolicyDeps {
  readonly client: Client | undefined;
  readonly checkpoints: PodCheckpoints | undefined;
  readonly node: { node(): NodeObject };
  readonly events: Pick<AgentEvents, 'nodeEvent'>;
  /** The addresses at which this node answers the queries of its pods. */
  readonly ownNameServers: () => readonly string[];
  /** Whether the nodes of this cluster provide its services. Rejects with the signal's reason if it aborts. */
  readonly nodesProvideServices: (signal: AbortSignal) => Promise<boolean>;
}

/** Holds the containers of a pod until the rules for its addresses are in effect. */
export type NetworkPolicies = PodNetworkGate & Part;

const RETRY_MS = 5_000;
/** How often to check whether the right of the node to read policies has changed. */
const CHECK_DENIED_MS = 60_000;
const CHECK_ALLOWED_MS = 300_000;
const NONE: NetworkPolicies = { admit: () => Promise.resolve(), forget: () => undefined };

/**
 * Creates the part that enforces network policies, or removes the rules of an earlier run if they are not to be enforced.
 */
export function createNetworkPolicies(base: Base, deps: NetworkPolicyDeps): NetworkPolicies {
  const { flags, logger, rootDirectory, signal } = base;
  const table = policyTable(rootDirectory);
  const { client } = deps;
  const removeRules = (): void => {
    // Without nft there are no rules of an earlier run.
    const removing = hostNftables()
      .remove(table)
      .catch((error: unknown) => logger.debug({ err: error }, 'Cannot remove the rules of network policies'));
    background(removing, { logger, what: 'Removing the rules of network policies', signal });
  };
  if (client === undefined || flags.networkPolicy === 'none') {
    removeRules();
    return NONE;
  }
  let enforcer: PolicyEnforcer | undefined;
  let stop: (how: { readonly remove: boolean }) => Promise<void> = () => Promise.resolve();
  const firstDecision = Promise.withResolvers<void>();
  let isDecided = false;
  const decided = (): void => {
    isDecided = true;
    firstDecision.resolve();
  };
  const start = (): void => {
    const informers = remoteInformers({ client, clock: base.clock, logger });
    const started = createEnforcer(base, { ...deps, informers, table });
    const running = started.run(signal);
    enforcer = started;
    stop = async (how) => {
      enforcer = undefined;
      stop = () => Promise.resolve();
      await started.close(how);
      await running;
      await informers.close();
    };
    decided();
  };
  const off = async (): Promise<void> => {
    await stop({ remove: true });
    removeRules();
    decided();
  };
  const deciding = decide(base, deps, client, { start, off });
  background(deciding, { logger, what: 'Starting the enforcement of network policies', signal });
  return {
    async admit(pod, sandbox, aborted) {
      const { ips } = sandbox;
      if (pod.spec.hostNetwork === true || ips.length === 0) return;
      // The API server itself may be a static pod, so static pods do not wait for the mode. Their next sync applies the rules.
      const isStatic = (pod.metadata.annotations?.[SOURCE_ANNOTATION] ?? 'api') !== 'api';
      if (isStatic && !isDecided) return;
      await untilAborted(firstDecision.promise, aborted);
      // The agent and the clients have different types for the same pod.
      if (enforcer !== undefined) await untilAborted(enforcer.admit(pod as never, ips), aborted);
    },
    forget: (pod: Pod) => enforcer?.forget(pod as never),
    async close({ hostCleared }: Closing) {
      await stop({ remove: hostCleared });
    },
  };
}

/** Calls `start`, or `off`. With `auto`, it calls the other one when the node gets or loses the right to read policies. */
export async function decide(
  { flags, clock, logger, signal }: Pick<Base, 'flags' | 'clock' | 'logger' | 'signal'>,
  { nodesProvideServices, checkpoints }: Pick<NetworkPolicyDeps, 'nodesProvideServices' | 'checkpoints'>,
  client: Pick<Client, 'create'>,
  { start, off }: { readonly start: () => void; readonly off: () => Promise<void> },
): Promise<void> {
  if (flags.networkPolicy !== 'auto') return start();
  if (!(await nodesProvideServices(signal))) return off();
  // A node that enforced policies before had the right. The API server may not be available now.
  let state: 'waiting' | 'on' | 'off' = 'waiting';
  if ((await checkpoints?.networkPolicies()) !== undefined) {
    start();
    state = 'on';
  }
  const loop = new WakeableLoop({
    clock,
    onError: (error) =>
      logger.error({ err: error }, 'The enforcement of network policies cannot be started or ended, retrying'),
    backoff: new Backoff({ firstMs: RETRY_MS, longestMs: RETRY_MS }),
  });
  await loop.run(signal, async () => {
    // While the API server is not available, the answer is unknown, and the next attempt follows.
    const answer = await mayReadPolicies(client).catch(() => undefined);
    // A user who keeps an authorizer from answering must not be able to turn policies off.
    const isAllowed = answer?.isFault === true && state === 'on' ? undefined : answer?.isAllowed;
    if (signal.aborted) return Infinity;
    if (isAllowed === true && state !== 'on') {
      start();
      state = 'on';
    } else if (isAllowed === false && state !== 'off') {
      logger.warn(
        {},
        'Network policies are not enforced: nodes may not read them (--disable network-policies of the control plane, or an earlier release of it)',
      );
      await off();
      state = 'off';
    }
    return isAllowed === undefined ? RETRY_MS : state === 'on' ? CHECK_ALLOWED_MS : CHECK_DENIED_MS;
  });
}

/** Asks for the node's own access. `isFault`: an authorizer that might have allowed it failed, so the denial is not final. */
async function mayReadPolicies(
  client: Pick<Client, 'create'>,
): Promise<{ readonly isAllowed: boolean; readonly isFault: boolean }> {
  const { group, resource } = networkPolicies;
  const review = await client.create(selfSubjectAccessReviews, '', {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectAccessReview',
    metadata: {},
    spec: { resourceAttributes: { group, resource, verb: 'list' } },
  } as never);
  const { allowed, evaluationError = '' } = (review as unknown as SelfSubjectAccessReview).status ?? {};
  const isAllowed = allowed === true;
  return { isAllowed, isFault: !isAllowed && evaluationError !== '' };
}

function createEnforcer(
  { clock, logger, nodeName }: Base,
  {
    informers,
    table,
    checkpoints,
    events,
    node,
    ownNameServers,
  }: NetworkPolicyDeps & {
    readonly informers: Informers;
    readonly table: string;
  },
): PolicyEnforcer {
  const partLogger = logger.child({ part: 'network-policy' });
  const unenforced = (message: string): void => events.nodeEvent(node.node(), 'NetworkPolicyNotEnforced', message);
  return new PolicyEnforcer({
    policies: informers.for(networkPolicies),
    startInformers: () => ({ namespaces: informers.for(namespaces), pods: informers.for(pods) }),
    nft: hostNftables(),
    table,
    memory: {
      load: async () => (await checkpoints?.networkPolicies()) as never,
      save: (inputs) => checkpoints?.saveNetworkPolicies(inputs),
    },
    nodeName,
    nameServers: ownNameServers,
    clock,
    logger: partLogger,
    async prepareHost() {
      const isSet = await setKernelParameters(
        {
          'net.bridge.bridge-nf-call-iptables': '/proc/sys/net/bridge/bridge-nf-call-iptables',
          'net.bridge.bridge-nf-call-ip6tables': '/proc/sys/net/bridge/bridge-nf-call-ip6tables',
        },
        partLogger,
        'Cannot set a kernel parameter to 1, network policies have no effect between pods of one bridge (is br_netfilter loaded?)',
      );
      if (!isSet)
        unenforced('Network policies have no effect between pods of one bridge of this node: load br_netfilter');
    },
    onUnenforced: unenforced,
  });
}
