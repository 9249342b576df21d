/** Removes what an agent leaves on the host so that pods keep running without it. Tests remove their pods, and then this. */
import { spawnSync } from 'node:child_process';
import { hostNftables } from '../../agent/network/nftables.ts';
import { addressTable, removeAddressTable } from '../../agent/network/podaddresses/address-binder.ts';

/** Removes the rules that bind the pods of this agent to their addresses. Without nft there are none. */
export async function removeBoundAddresses(rootDirectory: string): Promise<void> {
  if (spawnSync('nft', ['--version']).error !== undefined) return;
  await removeAddressTable(hostNftables(), addressTable(rootDirectory));
}
