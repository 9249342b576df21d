/**
 * Implements `--bind-pod-addresses`: binds the interfaces of this node's pods to the addresses that they were given, so
 * that network policies can believe the source of a packet. It concerns the bridges that the agent itself configures: its
 * network in Docker, and the one of its CNI configuration.
 */
import { background } from '../../api/machinery/background.ts';
import { untilAborted } from '../../api/machinery/clock.ts';
import type { NodeObject } from '../base/model/node.ts';
import {
  AddressBinder,
  addressTable,
  bindingsFile,
  removeAddressTable,
} from '../network/podaddresses/address-binder.ts';
import { bridgePorts } from '../network/podaddresses/pod-interface.ts';
import { hostNftables } from '../network/nftables.ts';
import { POD_BRIDGE } from '../network/podnetwork/cni-configuration.ts';
import { dockerBridge, instanceOf } from '../runtime/instance.ts';
import type { PodNetworkGate } from '../runtime/kuberuntime/kube-runtime.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { Base } from './base.ts';
import type { AgentEvents } from './events.ts';
import type { Closing, Part } from './lifecycle.ts';

interface PodAddressDeps {
  readonly runtime: Pick<Runtime, 'sandboxProcess'>;
  readonly node: { node(): NodeObject };
  readonly events: Pick<AgentEvents, 'nodeEvent'>;
}

/**
 * Returns the gate that a new sandbox passes first: it binds the sandbox to its addresses, unless the flag is off or the pod
 * uses the host's network, and then calls the gate `next`.
 */
export function createPodAddresses(
  { flags, clock, logger, nodeName, rootDirectory, signal }: Base,
  { runtime, node, events }: PodAddressDeps,
  next: PodNetworkGate,
): PodNetworkGate & Part {
  const table = addressTable(rootDirectory);
  const nft = hostNftables();
  // Logs the error at the debug level. It mostly means that nft is not installed, and then there are no rules to remove.
  const cannotRemove = (error: unknown): void => logger.debug({ err: error }, 'Cannot remove bound addresses');
  if (!flags.bindPodAddresses) {
    const removal = nft.remove(table, 'bridge').catch(cannotRemove);
    background(removal, { logger, what: 'Removing bound addresses', signal });
    return { admit: (pod, sandbox, aborted) => next.admit(pod, sandbox, aborted), forget: (pod) => next.forget(pod) };
  }
  const partLogger = logger.child({ part: 'pod-addresses' });
  const binder = new AddressBinder({
    ...{ nft, table, clock, logger: partLogger },
    ports: bridgePorts([dockerBridge(instanceOf({ nodeName, rootDirectory })), POD_BRIDGE]),
    file: () => bindingsFile(table),
    processOf: (sandboxId) => runtime.sandboxProcess(sandboxId as never),
    onUnbound: (problem) =>
      events.nodeEvent(node.node(), 'PodAddressesNotBound', `Pods are not bound to their addresses: ${problem}`),
  });
  background(binder.run(signal), { logger: partLogger, what: 'Keeping pods bound to their addresses', signal });
  return {
    async admit(pod, sandbox, aborted) {
      if (pod.spec.hostNetwork !== true) await untilAborted(binder.bind(sandbox.id, sandbox.ips), aborted);
      await next.admit(pod, sandbox, aborted);
    },
    forget: (pod) => next.forget(pod),
    async close({ hostCleared }: Closing) {
      if (hostCleared) await removeAddressTable(nft, table).catch(cannotRemove);
    },
  };
}
