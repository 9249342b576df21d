/** Sets of ports that rules of network policies allow, in a canonical form: equal sets have equal keys. */

export const PROTOCOLS = ['TCP', 'UDP', 'SCTP'] as const;
type Protocol = (typeof PROTOCOLS)[number];

/** All ports of a protocol from the first to the last, both included. */
export interface PortRange {
  readonly protocol: Protocol;
  readonly first: number;
  readonly last: number;
}

/** A set of ports in canonical form. */
export interface AllowedPorts {
  /** All traffic, of other protocols as well. */
  readonly isAll: boolean;
  /** Sorted, without overlaps. Empty if all traffic is allowed. */
  readonly ranges: readonly PortRange[];
  readonly key: string;
}

/** The largest port number. */
export const LAST_PORT = 65_535;
/** The set of a rule without ports. */
export const ALL_PORTS: AllowedPorts = { isAll: true, ranges: [], key: 'all' };

/** Sorts and merges the ranges, adjacent ones as well. */
export function allowedPorts(ranges: readonly PortRange[]): AllowedPorts {
  const merged: { protocol: Protocol; first: number; last: number }[] = [];
  const order = (protocol: Protocol): number => PROTOCOLS.indexOf(protocol);
  for (const range of ranges.toSorted((a, b) => order(a.protocol) - order(b.protocol) || a.first - b.first)) {
    const previous = merged.at(-1);
    if (previous?.protocol === range.protocol && range.first <= previous.last + 1)
      previous.last = Math.max(previous.last, range.last);
    else merged.push({ ...range });
  }
  const key = merged.map(({ protocol, first, last }) => `${protocol}:${first}-${last}`).join();
  return { isAll: false, ranges: merged, key };
}

/** Returns the ports that at least one set allows. */
export function unionOfPorts(sets: readonly AllowedPorts[]): AllowedPorts {
  const [only] = sets;
  if (only !== undefined && sets.length === 1) return only;
  return sets.some(({ isAll }) => isAll) ? ALL_PORTS : allowedPorts(sets.flatMap(({ ranges }) => ranges));
}
