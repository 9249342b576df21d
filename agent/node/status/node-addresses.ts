/** Determines the addresses that the node reports: those of `--node-ip`, else those of the host. */
import type { Clock } from '../../../api/machinery/clock.ts';
import { hostAddresses } from '../../host/host-facts.ts';

const MAX_AGE_MS = 10_000;

interface NodeAddressesOptions {
  readonly clock: Clock;
  /** The addresses of `--node-ip`. If empty, the host's first is used; with `::` or `0.0.0.0` alone, one of each family. */
  readonly configured: readonly string[];
  /** Replaces the addresses of this host. */
  readonly found?: () => readonly string[];
}

/** Caches the addresses: reading them costs more with each pod, because each pod has an interface on the host. */
export class NodeAddresses {
  readonly #options: NodeAddressesOptions;
  #cached: { readonly atMs: number; readonly ips: readonly string[] } | undefined;

  constructor(options: NodeAddressesOptions) {
    this.#options = options;
  }

  /** Returns addresses that are at most ten seconds old. The first is the primary one. */
  recent(): readonly string[] {
    const cached = this.#cached;
    if (cached !== undefined && this.#options.clock.monotonic() - cached.atMs < MAX_AGE_MS) return cached.ips;
    return this.read();
  }

  /** Reads the addresses of the host again. On a host without a network, the ones read before stay. */
  read(): readonly string[] {
    const { clock, configured, found = hostAddresses } = this.#options;
    const chosen = chooseAddresses(configured, found);
    // A host that has lost its network gets it back: its node keeps the address by which others know it.
    const ips = chosen.every(isLoopback) && this.#cached !== undefined ? this.#cached.ips : chosen;
    this.#cached = { atMs: clock.monotonic(), ips };
    return ips;
  }
}

const isLoopback = (address: string): boolean => address === '::1' || address.startsWith('127.');

/**
 * Chooses at most one address of each family. Without `wanted` addresses, only the first that was found is chosen. `::` or
 * `0.0.0.0` alone chooses one of each family among those that were found, and which family comes first. Pure.
 */
export function chooseAddresses(wanted: readonly string[], found: () => readonly string[]): readonly string[] {
  const isSix = (address: string): boolean => address.includes(':');
  const [only] = wanted;
  const preference = wanted.length === 1 && (only === '::' || only === '0.0.0.0') ? only : undefined;
  const fixed = preference === undefined ? wanted : [];
  // A configured address is the only one, unless an address of the other family is configured too.
  if (fixed.length > 0) {
    const [first = ''] = fixed;
    const other = fixed.find((address) => isSix(address) !== isSix(first));
    return [first, ...(other === undefined ? [] : [other])];
  }
  const hostIps = found();
  const ordered =
    preference === undefined
      ? hostIps
      : hostIps.toSorted((a, b) => Number(isSix(a) !== isSix(preference)) - Number(isSix(b) !== isSix(preference)));
  const [first] = ordered;
  const other = preference === undefined ? undefined : ordered.find((address) => isSix(address) !== isSix(first ?? ''));
  return [...(first === undefined ? [] : [first]), ...(other === undefined ? [] : [other])];
}
