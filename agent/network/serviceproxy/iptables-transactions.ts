/**
 * Turns the rules of one address family into input of `iptables-restore --noflush`: the chains that differ from the last time,
 * in parts that refer to chains of earlier parts only. Pure. The generators yield when their slice is spent, and run one after
 * the other.
 */
import type { Slice } from '../../../api/machinery/time-slice.ts';
import { filterChains, portRules, type PortRules, sharedNatChains } from './iptables-rules.ts';
import type { RuleSettings } from './rule-writer.ts';
import type { ServicePort } from './service-ports.ts';
import { type PortChange, replacePorts } from './service-table.ts';
import { type Difference, joinLines, TrackedValues } from './tracked-values.ts';

/** Holds the rules of one family: those that were written, and those that are to be written. */
export class IptablesTransactions {
  readonly #nat = new TrackedValues();
  readonly #filter = new TrackedValues();
  /** The rules of all ports, sorted by id when they are written, so that equal states produce equal rules. */
  readonly #ports = new Map<ServicePort, PortRules>();
  #settings: RuleSettings;
  #changed = true;

  constructor(settings: RuleSettings) {
    this.#settings = settings;
  }

  /** Replaces ports. Yields when the slice is spent. */
  *change(changes: readonly PortChange[], slice: Slice): Generator<void, void> {
    this.#changed ||= changes.length > 0;
    yield* replacePorts(changes, slice, { remove: (port) => this.#remove(port), add: (port) => this.#add(port) });
  }

  /** Takes new settings. Rewrites the rules of all ports if the ranges of pods differ. Yields when the slice is spent. */
  *configure(settings: RuleSettings, slice: Slice): Generator<void, void> {
    if (JSON.stringify(settings) === JSON.stringify(this.#settings)) return;
    const before = this.#settings;
    this.#settings = settings;
    this.#changed = true;
    if (settings.podCidrs.join() === before.podCidrs.join()) return;
    for (const port of [...this.#ports.keys()]) {
      this.#remove(port);
      this.#add(port);
      if (slice.isSpent) yield;
    }
  }

  /**
   * Forgets what was written, so that the next transaction writes all rules. `existing` are our chains of the nat table,
   * whichever process created them.
   */
  *forget(existing: Iterable<string>, slice: Slice): Generator<void, void> {
    this.#changed = true;
    yield* this.#nat.forget(slice, existing);
    yield* this.#filter.forget(slice);
  }

  /**
   * Returns the parts to apply one after the other; a change of up to `CHAINS_PER_PART` chains is one part. Returns none if
   * nothing differs. Call `commit` once all have been run.
   */
  *transaction(slice: Slice): Generator<void, string[]> {
    if (!this.#changed) return [];
    const ports = [...this.#ports.entries()].toSorted(([a], [b]) => (a.id < b.id ? -1 : 1)).map(([, rules]) => rules);
    if (slice.isSpent) yield;
    for (const [chain, rules] of sharedNatChains(this.#settings, ports)) this.#nat.set(chain, rules.join('\n'));
    for (const [chain, rules] of filterChains(this.#settings, ports)) this.#filter.set(chain, rules.join('\n'));
    if (slice.isSpent) yield;
    const nat = yield* inOrderOfReferences(yield* this.#nat.differences(slice), slice);
    const parts: string[] = [];
    for (let at = 0; at < nat.length; at += CHAINS_PER_PART)
      parts.push(yield* tableText('nat', nat.slice(at, at + CHAINS_PER_PART), slice));
    const filter = yield* tableText('filter', yield* this.#filter.differences(slice), slice);
    return filter === '' ? parts : [...parts.slice(0, -1), (parts.at(-1) ?? '') + filter];
  }

  /** Takes the last `transaction` as written. Yields when the slice is spent. */
  *commit(slice: Slice): Generator<void, void> {
    yield* this.#nat.commit(slice);
    yield* this.#filter.commit(slice);
    this.#changed = false;
  }

  #add(port: ServicePort): void {
    const rules = portRules(port, this.#settings);
    this.#ports.set(port, rules);
    for (const [chain, lines] of rules.chains) this.#nat.set(chain, lines.join('\n'));
  }

  #remove(port: ServicePort): void {
    for (const chain of this.#ports.get(port)?.chains.keys() ?? []) this.#nat.delete(chain);
    this.#ports.delete(port);
  }
}

/**
 * The maximum number of chains of one run of the tool. iptables-restore 1.8.9 searches a list of all chains of its input for
 * each line: with 1,000 services (4,100 chains) a run takes five times as long as four of a quarter.
 */
export const CHAINS_PER_PART = 1000;

/** The chains of the nat table by the beginnings of their names: each refers to earlier ones only. */
const REFERENCES = [
  ...['ORC-MASQUERADE', 'ORC-INSIDE', 'ORC-POSTROUTING'],
  ...['ORC-SEP-', 'ORC-SVC-', 'ORC-SVL-', 'ORC-EXT-', 'ORC-NODEPORTS', 'ORC-SERVICES'],
] as const;

/** Orders changed chains: each one comes before those that refer to it, and then come those to delete, in the reverse order. */
function* inOrderOfReferences(differences: readonly Difference[], slice: Slice): Generator<void, Difference[]> {
  const written = REFERENCES.map((): Difference[] => []);
  const deleted = REFERENCES.map((): Difference[] => []);
  const unknown: Difference[] = [];
  for (const difference of differences) {
    const rank = REFERENCES.findIndex((beginning) => difference.name.startsWith(beginning));
    (difference.after === undefined ? deleted : written)[rank]?.push(difference);
    // Chains of other versions: nothing is known of them but that they are to be deleted.
    if (rank === -1) unknown.push(difference);
    if (slice.isSpent) yield;
  }
  return [...written.flat(), ...unknown, ...deleted.toReversed().flat()];
}

/**
 * Returns the input of `iptables-restore` for the differences of one table. It flushes a chain before it deletes it, as
 * iptables requires.
 */
function* tableText(table: string, differences: readonly Difference[], slice: Slice): Generator<void, string> {
  if (differences.length === 0) return '';
  const lines = [
    `*${table}`,
    ...differences.map(({ name }) => `:${name} - [0:0]`),
    ...differences.flatMap(({ after }) => (after === undefined || after === '' ? [] : [after])),
    ...differences.filter(({ after }) => after === undefined).map(({ name }) => `-X ${name}`),
    'COMMIT',
  ];
  return yield* joinLines(lines, slice);
}
