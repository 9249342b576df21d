/**
 * Writes the rules of services with nftables, in tables of their own, and lets translated connections pass the iptables
 * rules of others.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import { inOneSlice, inSlices, TimeSlice } from '../../../api/machinery/time-slice.ts';
import type { Nftables } from '../nftables.ts';
import type { Family } from './addresses.ts';
import { ACCEPT_JUMPS, acceptRules, hasAcceptRules, hasForeignRules } from './iptables-rules.ts';
import type { PacketFilter } from './iptables.ts';
import { tableType } from './nftables-rules.ts';
import { NftablesTransactions } from './nftables-transactions.ts';
import type { RuleSettings, RuleWriter } from './rule-writer.ts';
import type { PortChange } from './service-table.ts';

interface NftablesWriterOptions {
  readonly nft: Nftables;
  /** The iptables of this host, which other programs may use. */
  readonly filter: PacketFilter;
  readonly table: string;
  readonly clock: Clock;
}

/** The name of the tables of services, one for each address family. */
export const SERVICES_TABLE = 'orchlet-services';

const PROBE_SETTINGS: RuleSettings = {
  family: 'IPv4',
  masqueradeBit: 0,
  podCidrs: ['192.0.2.0/24'],
  nodePortRanges: [],
  localhostNodePorts: false,
  nameServer: { addresses: ['192.0.2.1'], port: 1 },
};

/** The rule writer for hosts with nftables, which is preferred. */
export class NftablesWriter implements RuleWriter {
  readonly mode = 'nftables';
  readonly leastIntervalMs = 100;
  readonly #options: NftablesWriterOptions;
  readonly #transactions = new Map<Family, NftablesTransactions>();
  /** The families whose tables have what `#transactions` recorded as written. */
  readonly #writtenFamilies = new Set<Family>();
  #masqueradeBit = 0;

  constructor(options: NftablesWriterOptions) {
    this.#options = options;
  }

  problem(): Promise<string> {
    const { nft, table } = this.#options;
    return nft.problem(probeScript(`${table}-probe`));
  }

  async write(settings: RuleSettings, changes: readonly PortChange[]): Promise<void> {
    const { nft, clock, table } = this.#options;
    const { family } = settings;
    const transactions = this.#transactions.get(family) ?? new NftablesTransactions(table, settings);
    this.#transactions.set(family, transactions);
    this.#masqueradeBit = settings.masqueradeBit;
    const slice = new TimeSlice(clock);
    await inSlices(transactions.configure(settings, slice), slice);
    await inSlices(transactions.change(changes, slice), slice);
    if (!this.#writtenFamilies.has(family)) await inSlices(transactions.forget(slice), slice);
    await this.#tidy(transactions);
    const needsClients = !this.#writtenFamilies.has(family) && transactions.hasAffinity;
    const clients = needsClients ? await nft.expiringElements(table, tableType(family)) : undefined;
    slice.begin();
    const text = await inSlices(transactions.transaction(slice, clients), slice);
    if (text === '') return;
    const isFirst = !this.#writtenFamilies.delete(family);
    await nft.run(text);
    slice.begin();
    await inSlices(transactions.commit(clock.monotonic(), slice), slice);
    this.#writtenFamilies.add(family);
    if (isFirst) await this.#acceptInIptables(family);
  }

  forget(family: Family): void {
    this.#writtenFamilies.delete(family);
  }

  async intact(family: Family): Promise<boolean> {
    const { nft, table } = this.#options;
    if (!(await nft.hasTable(table, tableType(family)))) return false;
    const transactions = this.#transactions.get(family);
    if (transactions !== undefined) await this.#tidy(transactions);
    await this.#acceptInIptables(family);
    return true;
  }

  async remove(family: Family): Promise<void> {
    this.forget(family);
    await this.#options.nft.remove(this.#options.table, tableType(family));
  }

  /** Deletes chains that were emptied by earlier transactions. If the kernel refuses that, the next call tries again. */
  async #tidy(transactions: NftablesTransactions): Promise<void> {
    const nowMs = this.#options.clock.monotonic();
    const text = transactions.tidy(nowMs);
    if (text === '') return;
    await this.#options.nft.run(text);
    transactions.tidied(nowMs);
  }

  /**
   * Accepts translated connections in the iptables rules of other programs, which may have begun, or begun again, to drop
   * packets.
   */
  async #acceptInIptables(family: Family): Promise<void> {
    const { filter } = this.#options;
    const table = await filter.filterTable(family);
    if (!hasForeignRules(table) || hasAcceptRules(table, this.#masqueradeBit)) return;
    await filter.apply(family, acceptRules(this.#masqueradeBit));
    await filter.ensureJumps(family, ACCEPT_JUMPS);
  }
}

/** Returns a script with every expression that rules use. Kernels and tools that lack one refuse it. */
function probeScript(table: string): string {
  const [one, two] = [
    { ip: '192.0.2.2', port: 1 },
    { ip: '192.0.2.3', port: 1 },
  ];
  const cluster = [one, two];
  const port = {
    id: 'a/a:',
    since: '',
    protocol: 'TCP',
    clusterIp: '192.0.2.1',
    port: 1,
    nodePort: 1,
    externalIps: [],
    loadBalancerIps: ['192.0.2.9'],
    sourceRanges: ['192.0.2.0/24'],
    affinitySeconds: 0,
    externalLocal: true,
    cluster,
    internal: cluster,
    external: [],
    serving: [],
    hasEndpoints: true,
  } as const;
  const transactions = new NftablesTransactions(table, PROBE_SETTINGS);
  const after = [
    port,
    { ...port, id: 'a/b:', clusterIp: '192.0.2.4', nodePort: 0, loadBalancerIps: [], affinitySeconds: 1 },
  ];
  const slice = { isSpent: false };
  inOneSlice(transactions.change([{ before: [], after }], slice));
  return inOneSlice(transactions.transaction(slice));
}
