/**
 * Turns the nftables objects of one address family into transactions that write only what differs from the last one. Pure.
 *
 * Kernels before 6.2 count a reference to a chain from a map for a short time after the element is gone, so a chain that is no
 * longer needed is emptied first, and deleted by a later transaction (`tidy`).
 */
import type { ExpiringElement } from '../nftables.ts';
import { baseObjects, type NftObjects, type NftSet, portObjects, tableType } from './nftables-rules.ts';
import type { RuleSettings } from './rule-writer.ts';
import type { PortChange } from './service-table.ts';
import type { ServicePort } from './service-ports.ts';
import { type Difference, TrackedValues } from './tracked-values.ts';

/** How long a chain stays after its last reference, until the kernel certainly counts none. */
const STALE_MS = 1000;
/** Separates the parts of a tracked name or value; names, keys and rules have no line breaks. */
const BREAK = '\n';
/** A command with more elements is split. */
const MOST_ELEMENTS = 500;

export class NftablesTransactions {
  readonly #table: string;
  readonly #chains = new TrackedValues();
  readonly #sets = new TrackedValues();
  readonly #elements = new TrackedValues();
  /** By element: how many ports have it. The ports of a service share the element of its cluster IP. */
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
    this.#enter(this.#base);
  }

  /** Takes changes, which the next transaction writes. Yields after each service, so that the caller can pause. */
  *change(changes: readonly PortChange[]): Generator<void, void> {
    for (const { before } of changes) for (const port of before) this.#remove(port);
    for (const { after } of changes) {
      for (const port of after) this.#add(port);
      yield;
    }
  }

  configure(settings: RuleSettings): void {
    if (JSON.stringify(settings) === JSON.stringify(this.#settings)) return;
    const before = this.#settings;
    this.#settings = settings;
    this.#leave(this.#base);
    this.#base = baseObjects(settings);
    this.#enter(this.#base);
    if (settings.podCidrs.join() === before.podCidrs.join()) return;
    for (const port of [...this.#objects.keys()]) {
      this.#remove(port);
      this.#add(port);
    }
  }

  /** Makes the next transaction replace the table, because its state is unknown. */
  forget(): void {
    this.#isNew = true;
    this.#stale.clear();
    for (const values of [this.#chains, this.#sets, this.#elements]) values.forget();
  }

  /** Whether there are clients with session affinity, whom a transaction that replaces the table has to write again. */
  get hasAffinity(): boolean {
    return this.#affinitySets > 0;
  }

  /**
   * Returns the commands that write what differs; an empty text if nothing does. Yields after each part, so that the caller can
   * pause. After nft has run it, `commit` has to be called. `clients` are the elements of the affinity sets of a table that is
   * replaced, by the names of the sets.
   */
  *transaction(clients: ReadonlyMap<string, readonly ExpiringElement[]> = new Map()): Generator<void, string> {
    const table = this.#table;
    const chains = this.#chains.differences();
    const sets = this.#sets.differences();
    const elements = this.#elements.differences();
    yield;
    const lines: string[] = [];
    if (this.#isNew) lines.push(`add table ${table}`, `delete table ${table}`, `add table ${table}`);
    for (const { name, after = '' } of sets.filter(isAdded))
      lines.push(`add ${kindOf(after)} ${table} ${name} { ${after}; }`);
    for (const { name, after = '' } of chains.filter(isAdded)) {
      const [hook = ''] = after.split(BREAK, 1);
      lines.push(`add chain ${table} ${name}${hook === '' ? '' : ` { ${hook} }`}`);
      yield;
    }
    for (const { name } of chains.filter(exists)) lines.push(`flush chain ${table} ${name}`);
    lines.push(...this.#elementLines('delete', elements.filter(exists)));
    for (const { name, before = '' } of sets.filter(isGone)) lines.push(`delete ${kindOf(before)} ${table} ${name}`);
    for (const { name, after } of chains) {
      for (const rule of after?.split(BREAK).slice(1) ?? []) lines.push(`add rule ${table} ${name} ${rule}`);
      yield;
    }
    lines.push(...this.#elementLines('add', elements.filter(isWanted)));
    for (const [set, addresses] of this.#isNew ? clients : []) {
      if (this.#sets.get(set) === undefined) continue;
      for (const part of chunks(addresses.map(({ address, seconds }) => `${address} expires ${seconds}s`)))
        lines.push(`add element ${table} ${set} { ${part.join(', ')} }`);
      yield;
    }
    return lines.length === 0 ? '' : `${lines.join('\n')}\n`;
  }

  /** Records that nft has run the transaction. `nowMs` is monotonic time, as in `tidy`. */
  commit(nowMs: number): void {
    for (const { name, after } of this.#chains.differences())
      if (after === undefined) this.#stale.set(name, nowMs);
      else this.#stale.delete(name);
    for (const values of [this.#chains, this.#sets, this.#elements]) values.commit();
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
    this.#enter(objects);
  }

  #remove(port: ServicePort): void {
    const objects = this.#objects.get(port);
    if (objects === undefined) return;
    this.#objects.delete(port);
    this.#leave(objects);
  }

  #enter({ sets, chains, elements }: NftObjects): void {
    for (const { name, declaration } of sets) this.#sets.set(name, declaration);
    this.#affinitySets += sets.filter(isAffinitySet).length;
    for (const { name, hook = '', rules } of chains) this.#chains.set(name, [hook, ...rules].join(BREAK));
    for (const { set, key, value } of elements) {
      const name = `${set}${BREAK}${key}`;
      this.#holders.set(name, (this.#holders.get(name) ?? 0) + 1);
      this.#elements.set(name, value === undefined ? key : `${key} : ${value}`);
    }
  }

  #leave({ sets, chains, elements }: NftObjects): void {
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

  #elementLines(verb: 'add' | 'delete', differences: readonly Difference[]): string[] {
    const bySet = new Map<string, string[]>();
    for (const { name, after } of differences) {
      const [set = '', key = ''] = name.split(BREAK);
      const text = verb === 'add' ? (after ?? '') : key;
      const list = bySet.get(set);
      if (list === undefined) bySet.set(set, [text]);
      else list.push(text);
    }
    return [...bySet].flatMap(([set, list]) =>
      chunks(list).map((part) => `${verb} element ${this.#table} ${set} { ${part.join(', ')} }`),
    );
  }
}

const isAffinitySet = ({ declaration }: NftSet): boolean => declaration.includes('timeout');
const isAdded = ({ before }: Difference): boolean => before === undefined;
const isGone = ({ after }: Difference): boolean => after === undefined;
const exists = ({ before }: Difference): boolean => before !== undefined;
const isWanted = ({ after }: Difference): boolean => after !== undefined;

/** A map has the type of its values after a colon. */
const kindOf = (declaration: string): string => (declaration.includes(' : ') ? 'map' : 'set');

function chunks(list: readonly string[]): string[][] {
  const parts: string[][] = [];
  for (let at = 0; at < list.length; at += MOST_ELEMENTS) parts.push(list.slice(at, at + MOST_ELEMENTS));
  return parts;
}
