/** Writes the rules of services with iptables. `ServiceProxy` calls it. */
import type { Clock } from '../../../api/machinery/clock.ts';
import { inSlices, TimeSlice } from '../../../api/machinery/time-slice.ts';
import type { Family } from './addresses.ts';
import { IptablesTransactions, JUMPS } from './iptables-rules.ts';
import type { PacketFilter } from './iptables.ts';
import type { RuleSettings, RuleWriter } from './rule-writer.ts';
import type { PortChange } from './service-table.ts';

export class IptablesWriter implements RuleWriter {
  readonly mode = 'iptables';
  /** Each transaction reads whole tables. */
  readonly leastIntervalMs = 1000;
  readonly #filter: PacketFilter;
  readonly #clock: Clock;
  readonly #transactions = new Map<Family, IptablesTransactions>();
  /** The families whose rules are known. */
  readonly #known = new Set<Family>();

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
    transactions.configure(settings);
    await inSlices(transactions.change(changes), new TimeSlice(this.#clock));
    const isFirst = !this.#known.has(family);
    if (isFirst) transactions.forget(await this.#filter.chains(family));
    const text = transactions.transaction();
    if (text === '') return;
    this.#known.delete(family);
    await this.#filter.apply(family, text);
    if (isFirst) await this.#filter.ensureJumps(family, JUMPS);
    transactions.commit();
    this.#known.add(family);
  }

  forget(family: Family): void {
    this.#known.delete(family);
  }

  intact(family: Family): Promise<boolean> {
    return this.#filter.intact(family);
  }

  remove(family: Family): Promise<void> {
    this.forget(family);
    return this.#filter.remove(family);
  }
}
