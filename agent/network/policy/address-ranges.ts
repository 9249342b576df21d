/** Ranges of addresses with the ports that are allowed with each, and their division into ranges that do not overlap. */
import { type Cidr, cidrSize, parseCidr, parseIp } from '../../../api/meta/ip-addresses.ts';
import { type AllowedPorts, unionOfPorts } from './allowed-ports.ts';

/** The version of IP. */
export type AddressFamily = 4 | 6;

/** All addresses from the first to the last, both included, as numbers of 32 or 128 bits. */
export interface AddressRange {
  readonly family: AddressFamily;
  readonly first: bigint;
  readonly last: bigint;
}

/** A range of peers, with the ports that are allowed for it. */
export interface PeerRange extends AddressRange {
  readonly ports: AllowedPorts;
}

/** Every address of both families. */
export const ALL_ADDRESSES: readonly AddressRange[] = [
  { family: 4, first: 0n, last: (1n << 32n) - 1n },
  { family: 6, first: 0n, last: (1n << 128n) - 1n },
];

/** Returns the range of one address; none if the text is not an address. */
export function addressRange(text: string): AddressRange[] {
  const ip = parseIp(text);
  return ip === undefined ? [] : [{ family: ip.family, first: ip.value, last: ip.value }];
}

const rangeOf = (cidr: Cidr): AddressRange => ({
  family: cidr.family,
  first: cidr.base,
  last: cidr.base + cidrSize(cidr) - 1n,
});

/**
 * Returns the addresses of a block without the exceptions; none if the block is not a CIDR. An exception that is not a CIDR,
 * or is outside the block, is ignored.
 */
export function blockRanges(block: { readonly cidr: string; readonly except?: readonly string[] }): AddressRange[] {
  const cidr = parseCidr(block.cidr);
  if (cidr === undefined) return [];
  const { family, first, last } = rangeOf(cidr);
  const holes = (block.except ?? [])
    .flatMap((text) => parseCidr(text) ?? [])
    .map(rangeOf)
    .filter((hole) => hole.family === family && hole.first <= last)
    .sort((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : 0));
  const ranges: AddressRange[] = [];
  let next = first;
  for (const hole of holes) {
    if (hole.first > next) ranges.push({ family, first: next, last: hole.first - 1n });
    if (hole.last + 1n > next) next = hole.last + 1n;
  }
  if (next <= last) ranges.push({ family, first: next, last });
  return ranges;
}

/**
 * Divides ranges of one family into ranges that do not overlap, each with all ports that are allowed for it. Yields when
 * the slice is spent. `spend` is called with the number of steps before they are taken.
 */
export function* divideRanges(
  ranges: readonly PeerRange[],
  slice: { readonly isSpent: boolean },
  spend: (steps: number) => void,
): Generator<void, PeerRange[], undefined> {
  const opening = ranges.toSorted((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : 0));
  const closing = ranges.toSorted((a, b) => (a.last < b.last ? -1 : a.last > b.last ? 1 : 0));
  const open = new OpenSets();
  const divided: { family: AddressFamily; first: bigint; last: bigint; ports: AllowedPorts }[] = [];
  let from = 0n;
  const emit = (last: bigint): void => {
    const ports = open.union(spend);
    const family = ranges[0]?.family;
    if (ports === undefined || family === undefined || last < from) return;
    const previous = divided.at(-1);
    if (previous !== undefined && previous.last + 1n === from && previous.ports.key === ports.key) previous.last = last;
    else divided.push({ family, first: from, last, ports });
  };
  let closed = 0;
  for (const range of opening) {
    for (let next = closing[closed]; next !== undefined && next.last < range.first; next = closing[++closed]) {
      emit(next.last);
      from = next.last + 1n;
      open.remove(next.ports);
    }
    emit(range.first - 1n);
    from = range.first;
    open.add(range.ports);
    if (slice.isSpent) yield;
  }
  for (const range of closing.slice(closed)) {
    emit(range.last);
    from = range.last + 1n;
    open.remove(range.ports);
    if (slice.isSpent) yield;
  }
  return divided;
}

/** The sets of ports of the ranges that contain the current address, each counted. */
class OpenSets {
  readonly #counts = new Map<string, { readonly ports: AllowedPorts; count: number }>();
  readonly #unions = new Map<string, AllowedPorts>();

  add(ports: AllowedPorts): void {
    const entry = this.#counts.get(ports.key);
    if (entry === undefined) this.#counts.set(ports.key, { ports, count: 1 });
    else entry.count++;
  }

  remove(ports: AllowedPorts): void {
    const entry = this.#counts.get(ports.key);
    if (entry === undefined) return;
    if (entry.count > 1) entry.count--;
    else this.#counts.delete(ports.key);
  }

  /** Returns `undefined` if no range contains the current address. */
  union(spend: (steps: number) => void): AllowedPorts | undefined {
    if (this.#counts.size === 0) return undefined;
    let steps = 0;
    for (const { ports } of this.#counts.values()) steps += 1 + ports.ranges.length;
    spend(steps);
    const key = [...this.#counts.keys()].sort().join('|');
    let union = this.#unions.get(key);
    if (union === undefined)
      this.#unions.set(key, (union = unionOfPorts([...this.#counts.values()].map(({ ports }) => ports))));
    return union;
  }
}
