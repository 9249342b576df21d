/** Keeps the rules of the pod network on this host in sync with the nodes' ranges and addresses. */
import type { Logger } from '../../../api/component/logger.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import type { Cidr } from '../../../api/meta/ip-addresses.ts';
import type { Nftables } from '../nftables.ts';
import type { Peer } from './cluster-nodes.ts';
import { type NetworkMode, TUNNELS, type Uplink } from './desired-network.ts';
import type { PodPacketFilter } from './packet-filter.ts';
import { NAT_TABLE, natScript } from './nft-rules.ts';
import { jumps, packetRules, type RuleInputs } from './packet-rules.ts';
import { GUARD_TABLE, guardScript } from './tunnel-guard.ts';

/** The settings and the tools of the rules. */
export interface NodeRulesOptions {
  readonly mode: NetworkMode;
  /** The UDP port of the tunnel. */
  readonly port: number;
  readonly masqueradeBit: number;
  readonly filter: PodPacketFilter;
  readonly nft: Pick<Nftables, 'run' | 'hasTable' | 'remove'>;
  readonly logger: Logger;
}

/**
 * Owns the rules of this host. `apply` and `guard` compare with the last written rules, and write nothing if they are equal and
 * still there.
 */
export class NodeRules {
  readonly #options: NodeRulesOptions;
  /** The applied rules of each family. */
  readonly #applied = new Map<4 | 6, string>();
  /** Whether the host certainly has no rules of the pod network. */
  #hasCleared = false;
  /** The nftables script in effect that protects the port of the tunnel; empty without one, `undefined` if it is not known. */
  #guardScript: string | undefined;
  #hasWarned = false;
  /** Whether iptables masquerades. nftables does once the tools of iptables were not found. */
  #withIptables = true;
  /** The nftables script in effect in place of the iptables rules; empty without one, `undefined` if it is not known. */
  #natScript: string | undefined;

  constructor(options: NodeRulesOptions) {
    this.#options = options;
  }

  /** Whether the host certainly has no rules of the pod network. */
  get hasCleared(): boolean {
    return this.#hasCleared;
  }

  /** Takes for granted that the host has no rules of an earlier run, so that none have to be removed. */
  assumeNone(): void {
    this.#hasCleared = true;
    this.#guardScript = '';
    this.#natScript = '';
  }

  /**
   * Writes the rules with iptables, or with nftables if iptables is not installed. Without a bridge and peers, it removes
   * the rules: Docker masquerades and forwards for its own networks. Rejects if a tool fails.
   */
  async apply(
    ranges: readonly Cidr[],
    peers: readonly Peer[],
    { bridge, uplink }: { readonly bridge: string; readonly uplink: Uplink | undefined },
  ): Promise<void> {
    const { masqueradeBit, mode } = this.#options;
    if (bridge === '' && peers.length === 0) {
      if (!this.#hasCleared) await this.#remove(ranges.map(({ family }) => family));
      return;
    }
    const families = ranges.map((range): RuleInputs => {
      const { family } = range;
      const peerRanges = peers.flatMap((peer) => peer.ranges.filter((one) => one.family === family));
      return {
        ...{ family, range, peerRanges, bridge, masqueradeBit },
        tunnel: TUNNELS[mode],
        uplink: uplink?.name ?? '',
      };
    });
    this.#hasCleared = false;
    if (this.#withIptables) {
      try {
        for (const inputs of families) await this.#applyIptables(inputs);
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
        this.#withIptables = false;
      }
    }
    await this.#applyNft(families);
  }

  async #applyIptables(inputs: RuleInputs): Promise<void> {
    const { filter } = this.#options;
    const { family } = inputs;
    const rules = packetRules(inputs);
    const wanted = jumps(inputs);
    if (this.#applied.get(family) === rules && (await filter.intact(family, wanted))) return;
    await filter.apply(family, rules);
    await filter.ensureJumps(family, wanted);
    this.#applied.set(family, rules);
  }

  async #applyNft(families: readonly RuleInputs[]): Promise<void> {
    const { nft } = this.#options;
    const script = natScript(families);
    if (this.#natScript === script && (await nft.hasTable(NAT_TABLE))) return;
    await nft.run(script);
    this.#natScript = script;
  }

  /**
   * Protects the port of the VXLAN tunnel, so that only nodes can send packets to it. To be called before the link is
   * created. Never rejects: where nft does not work, the network works without this protection, which is logged once.
   */
  async guard(peers: readonly Peer[]): Promise<void> {
    const { mode, port, nft, logger } = this.#options;
    const script = mode === 'vxlan' && peers.length > 0 ? guardScript(port, peers) : '';
    try {
      if (this.#guardScript === script && (script === '' || (await nft.hasTable(GUARD_TABLE)))) return;
      await (script === '' ? nft.remove(GUARD_TABLE) : nft.run(script));
      this.#guardScript = script;
    } catch (error) {
      if (script === '' || this.#hasWarned) return;
      this.#hasWarned = true;
      logger.warn(
        { port, err: errorMessage(error) },
        'Cannot protect the port of the pod network with nftables; admit only nodes to it in a firewall, because every host that reaches it can send packets to pods',
      );
    }
  }

  /** Removes the rules of both families, and those that guard tunnels. */
  async clear(): Promise<void> {
    await this.#remove([4, 6]);
    await this.guard([]);
  }

  async #remove(families: readonly (4 | 6)[]): Promise<void> {
    const { filter, nft } = this.#options;
    for (const family of families) await filter.remove(family);
    if (this.#natScript !== '') {
      const hasWritten = this.#natScript !== undefined;
      await nft.remove(NAT_TABLE).catch((error: unknown) => {
        // An nft that does not work has written no table in an earlier run.
        if (hasWritten) throw error;
      });
    }
    this.#natScript = '';
    this.#applied.clear();
    this.#hasCleared = true;
  }
}
