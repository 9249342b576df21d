import { createHash } from 'node:crypto';

/** Returns the name of an agent's table of nftables. Each agent of a host has a table for its own pods. */
export function policyTable(rootDirectory: string): string {
  return `orchlet_policy_${createHash('sha256').update(rootDirectory).digest('hex').slice(0, 12)}`;
}
