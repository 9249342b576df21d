/**
 * Turns the nftables objects of one address family into transactions that write only what differs from the last one. The
 * generators yield when their slice is spent, and run one after the other.
 *
 * Kernels before 6.2 count a reference to a chain from a map for a short time after the element is gone, so a chain that is no
 * longer needed is emptied first, and deleted by a later transaction (`tidy`).
 */
import type { Slice } from '../../../api/machinery/time-slice.ts';
import type { ExpiringElement } from '../nftables.ts';
import { baseObjects, type NftObjects, type NftSet, portObjects, tableType } from './nftables-rules.ts';
import type { RuleSettings } from './rule-writer.ts';
import { type PortChange, replacePorts } from './service-table.ts';
import type { ServicePort } from './service-ports.ts';
import { type Difference, joinLines, TrackedValues } from './tracked-values.ts';

/** How long a chain stays after its last reference, until the kernel certainly counts none. */
const STALE_MS = 1000;
/** Separates the parts of a tracked name or value; names, keys and rules have no line breaks. */
const BREAK = '\n';
/** A command with more elements is split. */
const MAX_ELEMENTS = 500;

/**
 * Holds the objects of one family: those that were written, those that are to be written, and chains that wait to be deleted.
 */
export class NftablesTransactions {
  readonly #table: string;
  readonly #chains = new TrackedValues();
  readonly #sets = new TrackedValues();
  readonly #elements = new TrackedValues();
  /** The number of ports that share an element, by element. The ports of a service share the element of its cluster IP. */
  readonly #holders = new Map<string, number>();
  /** What each port has added. */
  readonly #objects = new Map<ServicePort, NftObjects>();
  /** Empty chains, with the time at which they were emptied. */
  readonly #stale = new Map<string, number>();
  #settings: RuleSettings;
  #base: NftObjects;
  #isNew = true;
  /** The number of sets of session affinity. */
  #affinitySets = 0;

  constructor(name: string, settings: RuleSettings) {
    this.#table = `${tableType(settings.family)} ${name}`;
    this.#settings = settings;
    this.#base = baseObjects(settings);
    this.#addObjects(this.#base);
  }

  /** Takes changes, which the next transaction writes. */
  *change(changes: readonly PortChange[], slice: Slice): Generator<void, void> {
    yield* replacePorts(changes, slice, { remove: (port) => this.#remove(port), add: (port) => this.#add(port) });
  }

  /** Takes new settings. Rewrites the rules of all ports if the ranges of pods differ. Yields when the slice is spent. */
  *configure(settings: RuleSettings, slice: Slice): Generator<void, void> {
    if (JSON.stringify(settings) === JSON.stringify(this.#settings)) return;
    const before = this.#settings;
    this.#settings = settings;
    this.#removeObjects(this.#base);
    this.#base = baseObjects(settings);
    this.#addObjects(this.#base);
    if (settings.podCidrs.join() === before.podCidrs.join()) return;
    for (const port of [...this.#objects.keys()]) {
      this.#remove(port);
      this.#add(port);
      if (slice.isSpent) yield;
    }
  }

  /** Makes the next transaction replace the table, because its state is unknown. */
  *forget(slice: Slice): Generator<void, void> {
    this.#isNew = true;
    this.#stale.clear();
    for (const values of [this.#chains, this.#sets, this.#elements]) yield* values.forget(slice);
  }

  /** Whether there are sets of session affinity, whose clients a transaction that replaces the table has to write again. */
  get hasAffinity(): boolean {
    return this.#affinitySets > 0;
  }

  /**
   * Returns the commands that write what differs; an empty text if nothing does. After nft has run it, `commit` has to be
   * called. `clients` are the elements of the affinity sets of a table that is replaced, by the names of the sets.
   */
  *transaction(
    slice: Slice,
    clients: ReadonlyMap<string, readonly ExpiringElement[]> = new Map(),
  ): Generator<void, string> {
    const lines: string[] = [];
    for (const line of this.#lines(yield* this.#differences(slice), clients)) {
      lines.push(line);
      if (slice.isSpent) yield;
    }
    return yield* joinLines(lines, slice);
  }

  *#differences(slice: Slice): Generator<void, Differences> {
    const chains = yield* this.#chains.differences(slice);
    const sets = yield* this.#sets.differences(slice);
    const elements = yield* this.#elements.differences(slice);
    return { chains, sets, elements };
  }

  *#lines(
    { chains, sets, elements }: Differences,
    clients: ReadonlyMap<string, readonly ExpiringElement[]>,
  ): Generator<string, void> {
    const table = this.#table;
    if (this.#isNew) yield* [`add table ${table}`, `delete table ${table}`, `add table ${table}`];
    for (const { name, before, after = '' } of sets)
      if (before === undefined) yield `add ${kindOf(after)} ${table} ${name} { ${after}; }`;
    for (const { name, before, after = '' } of chains) {
      if (before !== undefined) continue;
      const [hook = ''] = after.split(BREAK, 1);
      yield `add chain ${table} ${name}${hook === '' ? '' : ` { ${hook} }`}`;
    }
    for (const { name, before } of chains) if (before !== undefined) yield `flush chain ${table} ${name}`;
    yield* this.#elementLines('delete', elements);
    for (const { name, before = '', after } of sets)
      if (after === undefined) yield `delete ${kindOf(before)} ${table} ${name}`;
    for (const { name, after } of chains)
      for (const rule of after?.split(BREAK).slice(1) ?? []) yield `add rule ${table} ${name} ${rule}`;
    yield* this.#elementLines('add', elements);
    for (const [set, addresses] of this.#isNew ? clients : []) {
      if (this.#sets.get(set) === undefined) continue;
      for (const part of chunks(addresses.map(({ address, seconds }) => `${address} expires ${seconds}s`)))
        yield `add element ${table} ${set} { ${part.join(', ')} }`;
    }
  }

  /** Records that nft has run the transaction. `nowMs` is monotonic time, as in `tidy`. */
  *commit(nowMs: number, slice: Slice): Generator<void, void> {
    for (const { name, after } of yield* this.#chains.differences(slice))
      if (after === undefined) this.#stale.set(name, nowMs);
      else this.#stale.delete(name);
    for (const values of [this.#chains, this.#sets, this.#elements]) yield* values.commit(slice);
    this.#isNew = false;
  }

  /** Returns a transaction that deletes chains which have been unused for long enough; empty if there are none. */
  tidy(nowMs: number): string {
    return this.#expired(nowMs)
      .map((name) => `delete chain ${this.#table} ${name}\n`)
      .join('');
  }

  /** Records that nft has run the result of `tidy` for the same time. */
  tidied(nowMs: number): void {
    for (const name of this.#expired(nowMs)) this.#stale.delete(name);
  }

  #expired(nowMs: number): string[] {
    return [...this.#stale].filter(([, sinceMs]) => nowMs - sinceMs >= STALE_MS).map(([name]) => name);
  }

  #add(port: ServicePort): void {
    const objects = portObjects(port, this.#settings);
    this.#objects.set(port, objects);
    this.#addObjects(objects);
  }

  #remove(port: ServicePort): void {
    const objects = this.#objects.get(port);
    if (objects === undefined) return;
    this.#objects.delete(port);
    this.#removeObjects(objects);
  }

  #addObjects({ sets, chains, elements }: NftObjects): void {
    for (const { name, declaration } of sets) this.#sets.set(name, declaration);
    this.#affinitySets += sets.filter(isAffinitySet).length;
    for (const { name, hook = '', rules } of chains) this.#chains.set(name, [hook, ...rules].join(BREAK));
    for (const { set, key, value } of elements) {
      const name = `${set}${BREAK}${key}`;
      this.#holders.set(name, (this.#holders.get(name) ?? 0) + 1);
      this.#elements.set(name, value === undefined ? key : `${key} : ${value}`);
    }
  }

  #removeObjects({ sets, chains, elements }: NftObjects): void {
    for (const { name } of sets) this.#sets.delete(name);
    this.#affinitySets -= sets.filter(isAffinitySet).length;
    for (const { name } of chains) this.#chains.delete(name);
    for (const { set, key } of elements) {
      const name = `${set}${BREAK}${key}`;
      const holders = (this.#holders.get(name) ?? 0) - 1;
      if (holders > 0) this.#holders.set(name, holders);
      else {
        this.#holders.delete(name);
        this.#elements.delete(name);
      }
    }
  }

  /** Yields commands for up to `MAX_ELEMENTS` elements of one set. */
  *#elementLines(verb: 'add' | 'delete', differences: readonly Difference[]): Generator<string, void> {
    const bySet = new Map<string, string[]>();
    const command = (set: string, list: readonly string[]): string =>
      `${verb} element ${this.#table} ${set} { ${list.join(', ')} }`;
    for (const { name, before, after } of differences) {
      if ((verb === 'add' ? after : before) === undefined) continue;
      const [set = '', key = ''] = name.split(BREAK);
      const list = bySet.get(set) ?? [];
      bySet.set(set, list);
      list.push(verb === 'add' ? (after ?? '') : key);
      if (list.length === MAX_ELEMENTS) yield command(set, list.splice(0));
    }
    for (const [set, list] of bySet) if (list.length > 0) yield command(set, list);
  }
}

interface Differences {
  readonly chains: readonly Difference[];
  readonly sets: readonly Difference[];
  readonly elements: readonly Difference[];
}

const isAffinitySet = ({ declaration }: NftSet): boolean => declaration.includes('timeout');

/** Returns whether a declaration is that of a map or of a set. A map has the type of its values after a colon. */
const kindOf = (declaration: string): string => (declaration.includes(' : ') ? 'map' : 'set');

function chunks(list: readonly string[]): string[][] {
  const parts: string[][] = [];
  for (let at = 0; at < list.length; at += MAX_ELEMENTS) parts.push(list.slice(at, at + MAX_ELEMENTS));
  return parts;
}
