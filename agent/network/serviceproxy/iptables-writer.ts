/** Writes the rules of services with iptables. */
import type { Clock } from '../../../api/machinery/clock.ts';
import { inSlices, TimeSlice } from '../../../api/machinery/time-slice.ts';
import type { Family } from './addresses.ts';
import { JUMPS } from './iptables-rules.ts';
import { IptablesTransactions } from './iptables-transactions.ts';
import type { PacketFilter } from './iptables.ts';
import type { RuleSettings, RuleWriter } from './rule-writer.ts';
import type { PortChange } from './service-table.ts';

/** The rule writer for `--proxy-mode=iptables` and hosts without nftables. */
export class IptablesWriter implements RuleWriter {
  readonly mode = 'iptables';
  /** The minimum time between two transactions, each of which reads whole tables. */
  readonly leastIntervalMs = 1000;
  readonly #filter: PacketFilter;
  readonly #clock: Clock;
  readonly #transactions = new Map<Family, IptablesTransactions>();
  /** The families whose chains have what `#transactions` recorded as written. */
  readonly #writtenFamilies = new Set<Family>();

  constructor(filter: PacketFilter, clock: Clock) {
    this.#filter = filter;
    this.#clock = clock;
  }

  problem(): Promise<string> {
    return this.#filter.problem('IPv4');
  }

  async write(settings: RuleSettings, changes: readonly PortChange[]): Promise<void> {
    const { family } = settings;
    const transactions = this.#transactions.get(family) ?? new IptablesTransactions(settings);
    this.#transactions.set(family, transactions);
    const slice = new TimeSlice(this.#clock);
    await inSlices(transactions.configure(settings, slice), slice);
    await inSlices(transactions.change(changes, slice), slice);
    const isFirst = !this.#writtenFamilies.has(family);
    if (isFirst) await inSlices(transactions.forget(await this.#filter.chains(family), slice), slice);
    const parts = await inSlices(transactions.transaction(slice), slice);
    if (parts.length === 0) return;
    this.#writtenFamilies.delete(family);
    for (const part of parts) await this.#filter.apply(family, part);
    if (isFirst) await this.#filter.ensureJumps(family, JUMPS);
    slice.begin();
    await inSlices(transactions.commit(slice), slice);
    this.#writtenFamilies.add(family);
  }

  forget(family: Family): void {
    this.#writtenFamilies.delete(family);
  }

  intact(family: Family): Promise<boolean> {
    return this.#filter.intact(family);
  }

  remove(family: Family): Promise<void> {
    this.forget(family);
    return this.#filter.remove(family);
  }
}
