/** The boundary between the service proxy and the two ways to write its rules: iptables and nftables. */
import type { Family } from './addresses.ts';
import type { PortChange } from './service-table.ts';

/** The way in which rules are written, with the names of kube-proxy's `--proxy-mode`. */
export type ProxyMode = 'iptables' | 'nftables';

/** What the rules of one family depend on besides the services. */
export interface RuleSettings {
  readonly family: Family;
  /** The value of `--iptables-masquerade-bit`. */
  readonly masqueradeBit: number;
  /** The pod CIDRs of this node. Traffic from them is inside the cluster. */
  readonly podCidrs: readonly string[];
  /** The ranges of the addresses of this host that have node ports. Empty for all addresses. */
  readonly nodePortRanges: readonly string[];
  /** Whether node ports are reachable by 127.0.0.1. Only iptables can provide that. */
  readonly localhostNodePorts: boolean;
  /**
   * Redirects traffic to port 53 of these addresses to `port` of this host, where the agent's name server listens. All
   * other traffic to that port that does not come from this host is dropped, also where there are no addresses of the family.
   */
  readonly nameServer?: NameServer | undefined;
}

/** The name server of this node, which only this node and its pods may reach. */
export interface NameServer {
  readonly addresses: readonly string[];
  readonly port: number;
}

/** Writes the rules of both families. Operations on one family do not overlap. */
export interface RuleWriter {
  readonly mode: ProxyMode;
  /** The minimum time between two transactions. */
  readonly leastIntervalMs: number;
  /** Returns an empty string if this host can have the rules, else the reason. Changes nothing. */
  problem(): Promise<string>;
  /**
   * Takes changes of the ports of a family, and writes what differs from the last write: with nftables as one transaction, with
   * iptables as one for each `CHAINS_PER_PART` chains. The first write replaces all rules of the family. Changes need not be
   * repeated after a failure.
   */
  write(settings: RuleSettings, changes: readonly PortChange[]): Promise<void>;
  /** Called when the state of the rules is not known: the next `write` replaces them. */
  forget(family: Family): void;
  /**
   * Returns false if another process has removed the rules. The nftables writer also restores the rules of iptables that accept
   * translated connections.
   */
  intact(family: Family): Promise<boolean>;
  /** Removes all rules of the family, also those of an earlier process. */
  remove(family: Family): Promise<void>;
}
