/**
 * Removes everything that the pod network has created on this host: links, routes, rules and the CNI configuration. Pods
 * must be gone.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { POD_BRIDGE, recordedDirectory, removeCniConfiguration } from './cni-configuration.ts';
import { hostNetwork } from './host-network.ts';
import { removalCommands } from './network-difference.ts';
import { hostNftables } from '../nftables.ts';
import { NAT_TABLE } from './nft-rules.ts';
import { GUARD_TABLE } from './tunnel-guard.ts';
import { podPacketFilter } from './packet-filter.ts';

interface RemovePodNetworkOptions {
  /** The directory of the pod network's state, which exists if something was set up. */
  readonly stateDirectory: string;
  /** A command that runs the tools elsewhere, for example in a network namespace. */
  readonly prefix?: readonly string[];
}

/** The lock of the agent whose pod network works in a network namespace. */
export const POD_NETWORK_LOCK = 'orchlet-pod-network';

/** Returns the directory of the pod network's state, below the agent's root directory. */
export const podNetworkDirectory = (rootDirectory: string): string => join(rootDirectory, 'pod-network');

/**
 * Removes the pod network and its state from this host. Succeeds if nothing is there. A tool that is not installed is
 * skipped. Rejects if a tool fails.
 */
export async function removePodNetwork({ stateDirectory, prefix = [] }: RemovePodNetworkOptions): Promise<void> {
  const configurationDirectory = await recordedDirectory(stateDirectory);
  if (configurationDirectory !== '') await removeCniConfiguration({ configurationDirectory, pluginDirectories: [] });
  const host = hostNetwork(prefix);
  await unlessAbsent(async () => {
    const before = removalCommands(await host.observe());
    await host.change({ before, createsWireguard: false, ip: [], bridge: [], wireguard: [] });
    await host.removeLink(POD_BRIDGE);
  });
  const filter = podPacketFilter(prefix);
  for (const family of [4, 6] as const) await unlessAbsent(() => filter.remove(family));
  for (const table of [NAT_TABLE, GUARD_TABLE]) await unlessAbsent(() => hostNftables(prefix).remove(table));
  await rm(stateDirectory, { recursive: true, force: true });
}

/** Ignores the error that a tool is not installed. The other tools may still have something to remove. */
async function unlessAbsent(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}
