/** Removes the rules and links of the agent in the network namespace of this process, and restores kernel parameters. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { policyTable } from '../../agent/network/policy/policy-table.ts';
import { kernelParameterRecords, restoreKernelParameter } from '../../agent/network/kernel-parameters.ts';
import { isNamespaceLocked } from '../../agent/network/namespace-lock.ts';
import { hostNftables } from '../../agent/network/nftables.ts';
import { addressTable, bindingsFile, removeAddressTable } from '../../agent/network/podaddresses/address-binder.ts';
import {
  POD_NETWORK_LOCK,
  podNetworkDirectory,
  removePodNetwork,
} from '../../agent/network/podnetwork/remove-pod-network.ts';
import { hostPacketFilter } from '../../agent/network/serviceproxy/iptables.ts';
import { SERVICES_TABLE } from '../../agent/network/serviceproxy/nftables-writer.ts';
import { PROXY_LOCK } from '../../agent/network/serviceproxy/service-proxy.ts';
import { dockerBridge } from '../../agent/runtime/instance.ts';
import type { Leftover } from '../../agent/runtime/leftovers.ts';
import type { ResetStep, ResetTarget } from './target.ts';

const hasCommand = (name: string): boolean => spawnSync('sh', ['-c', `command -v ${name}`]).status === 0;

/** The rules of services. They stay while another agent of this namespace runs the service proxy. */
export const serviceRules: ResetStep = {
  name: 'rules of services',
  async find() {
    const filter = hostPacketFilter();
    const found: Leftover[] = [];
    const unlessUsed = (remove: () => Promise<void>) => async (): Promise<void> => {
      if (await isNamespaceLocked(PROXY_LOCK))
        throw new Error('another agent of this host runs and uses them: stop it first');
      await remove();
    };
    for (const [family, tool] of [
      ['IPv4', 'iptables'],
      ['IPv6', 'ip6tables'],
    ] as const) {
      // A host without the tool, or whose kernel lacks the table, has no rules of ours.
      if (!hasCommand(tool) || (await filter.problem(family)) !== '') continue;
      if (!(await filter.hasRules(family))) continue;
      found.push({
        text: `chains ORC-* of ${tool}`,
        remove: unlessUsed(() => filter.remove(family)),
      });
    }
    if (!hasCommand('nft')) return found;
    const nft = hostNftables();
    for (const type of ['ip', 'ip6'] as const)
      if (await nft.hasTable(SERVICES_TABLE, type))
        found.push({
          text: `table ${type} ${SERVICES_TABLE} of nftables`,
          remove: unlessUsed(() => nft.remove(SERVICES_TABLE, type)),
        });
    return found;
  },
};

/** The table with the network policies of the agent of this root directory. */
export const policyRules: ResetStep = {
  name: 'rules of network policies',
  async find({ rootDirectory }: ResetTarget) {
    if (!hasCommand('nft')) return [];
    const nft = hostNftables();
    const table = policyTable(rootDirectory);
    return (await nft.hasTable(table))
      ? [{ text: `table inet ${table} of nftables`, remove: () => nft.remove(table) }]
      : [];
  },
};

/** The table that binds pods to their addresses, and the stored bindings. */
export const boundAddresses: ResetStep = {
  name: 'addresses of pods',
  async find({ rootDirectory }: ResetTarget) {
    if (!hasCommand('nft')) return [];
    const nft = hostNftables();
    const table = addressTable(rootDirectory);
    const file = await bindingsFile(table);
    if (!(await nft.hasTable(table, 'bridge')) && !existsSync(file)) return [];
    return [{ text: `table bridge ${table} of nftables`, remove: () => removeAddressTable(nft, table) }];
  },
};

/** Removes everything that `--pod-network` created. Fails while another agent uses the pod network. */
export const podNetwork: ResetStep = {
  name: 'pod network',
  find({ rootDirectory }: ResetTarget) {
    const stateDirectory = podNetworkDirectory(rootDirectory);
    if (!existsSync(stateDirectory)) return Promise.resolve([]);
    return Promise.resolve([
      {
        text: 'links, routes, rules and CNI configuration of the pod network',
        async remove() {
          if (await isNamespaceLocked(POD_NETWORK_LOCK))
            throw new Error('another agent of this host runs and uses them: stop it first');
          await removePodNetwork({ stateDirectory });
        },
      },
    ]);
  },
};

/** The bridge of the agent's network in Docker. Docker removes it with the network; without its daemon it stays. */
export const links: ResetStep = {
  name: 'links',
  find({ instance }: ResetTarget) {
    const bridge = dockerBridge(instance);
    if (!existsSync(`/sys/class/net/${bridge}`)) return Promise.resolve([]);
    return Promise.resolve([
      {
        text: `link ${bridge}`,
        remove() {
          const { status, stderr } = spawnSync('ip', ['link', 'delete', bridge], { encoding: 'utf8' });
          const isGone = status === 0 || !existsSync(`/sys/class/net/${bridge}`);
          return isGone ? Promise.resolve() : Promise.reject(new Error(stderr.trim()));
        },
      },
    ]);
  },
};

/** Sets the kernel parameters that agents have changed to their previous values. */
export const kernelParameters: ResetStep = {
  name: 'kernel parameters',
  async find() {
    return (await kernelParameterRecords()).map((record) => ({
      text: `kernel parameter ${record.name}, which gets ${record.before} back`,
      remove: () => restoreKernelParameter(record),
    }));
  },
};
