/**
 * Allocates cluster addresses of services. The ranges are those of ServiceCIDR objects that are not terminating, and whose
 * condition Ready is not False. The ranges of the flags are used until their object exists. An address is allocated if an
 * IPAddress object, a stored service or a running write has it.
 */
import {
  canonicalIp,
  cidrAddress,
  cidrContains,
  cidrSize,
  parseCidr,
  parseIp,
  type Cidr,
} from '../../../../api/meta/ip-addresses.ts';
import type { CacheEntry } from '../../../storage/cache-entry.ts';
import { selectionOf } from '../../../storage/selection.ts';
import type { StoredResource } from '../../store.ts';
import type { ServiceCidr } from '../networking/networking-types.ts';
import type { Family } from './service-families.ts';
import { ServiceClaims } from './service-claims.ts';
import { clusterAddresses } from './service-ip-addresses.ts';
import type { Service } from './service-types.ts';
import { upperFirst } from '../upper-first.ts';

/** The configured ranges, and where ServiceCIDRs and addresses are stored. */
export interface ServiceRangesOptions {
  /** The value of `--service-cluster-ip-range`. */
  readonly serviceClusterCidrs: readonly string[];
  readonly stores: { get(group: string, resource: string): StoredResource };
}

/** The name of the ServiceCIDR object of the flags. */
export const DEFAULT_RANGE = 'kubernetes';
const EVERYTHING = selectionOf('');
/** The largest number of addresses of a range. It keeps numbers exact, and no cluster has as many services. */
const MAX_ADDRESSES = 1n << 48n;

interface Range {
  readonly text: string;
  readonly family: Family;
  readonly cidr: Cidr;
}

/** Allocates cluster addresses. */
export class ServiceRanges {
  readonly #options: ServiceRangesOptions;
  readonly #configured: readonly Range[];
  readonly #claims: ServiceClaims;
  /** The addresses of running writes. */
  readonly #held = new Set<string>();
  /** The parsed ranges of each ServiceCIDR. */
  readonly #parsed = new WeakMap<CacheEntry, readonly Range[]>();

  constructor(options: ServiceRangesOptions, claims = new ServiceClaims(options.stores)) {
    this.#options = options;
    this.#claims = claims;
    this.#configured = rangesOf(options.serviceClusterCidrs);
  }

  /** The families of the ranges. Services that request none get the first. */
  get families(): readonly Family[] {
    return this.#configured.map(({ family }) => family);
  }

  /** Allocates the address. Returns why that is impossible, or `undefined` on success. */
  take(address: string, family: string): string | undefined {
    const ip = parseIp(address);
    const fits = ({ cidr }: Range): boolean =>
      ip !== undefined && cidrContains(cidr, ip) && isAssignable(cidr, ip.value);
    // Neither the network address can be assigned nor, with IPv4, the broadcast address.
    if (!this.#usable(family).some(fits)) return 'the provided network does not match the current range';
    if (this.#isTaken(canonical(address))) return 'provided IP is already allocated';
    this.#held.add(canonical(address));
    return undefined;
  }

  /** Allocates an address. Returns `undefined` if all ranges of the family are full. */
  takeNext(family: string): string | undefined {
    for (const { cidr } of this.#usable(family)) {
      const size = assignable(cidr);
      // As in kube-apiserver, a 16th of the range, but 16 to 256 addresses, comes last: clients request its addresses.
      const reserved = size <= 16 ? 0 : Math.min(Math.max(16, Math.floor(size / 16)), 256);
      for (const index of upperFirst(size, reserved)) {
        const address = cidrAddress(cidr, 1 + index);
        if (this.#isTaken(address)) continue;
        this.#held.add(address);
        return address;
      }
    }
    return undefined;
  }

  /** Ends the reservation of an address by a write that has ended. */
  free(address: string): void {
    this.#held.delete(canonical(address));
  }

  /** Counts the addresses of each range that are allocated and that are left, from the stored objects. */
  usage(): readonly { readonly cidr: string; readonly allocated: number; readonly available: number }[] {
    const stored = (group: string, resource: string): readonly CacheEntry[] =>
      this.#store(group, resource).cache.list({ selection: EVERYTHING }).entries;
    const allocated = new Set([
      ...stored('networking.k8s.io', 'ipaddresses').map(({ object }) => canonical(object.metadata.name ?? '')),
      ...stored('', 'services').flatMap(({ object }) => clusterAddresses(object as Service).map(canonical)),
    ]);
    const addresses = [...allocated].map(parseIp).filter((address) => address !== undefined);
    return [...this.#usable('IPv4'), ...this.#usable('IPv6')].map(({ text, cidr }) => {
      const count = addresses.filter((address) => cidrContains(cidr, address)).length;
      return { cidr: text, allocated: count, available: Math.max(0, assignable(cidr) - count) };
    });
  }

  #isTaken(address: string): boolean {
    return (
      this.#held.has(address) ||
      this.#claims.hasAddress(address) ||
      this.#store('networking.k8s.io', 'ipaddresses').cache.get('', address) !== undefined
    );
  }

  #usable(family: string): readonly Range[] {
    const { cache } = this.#store('networking.k8s.io', 'servicecidrs');
    const { entries } = cache.list({ selection: EVERYTHING });
    const found = entries.flatMap((entry) => this.#rangesOf(entry));
    const ranges = cache.get('', DEFAULT_RANGE) === undefined ? [...this.#configured, ...found] : found;
    return ranges.filter((range) => range.family === family);
  }

  #rangesOf(entry: CacheEntry): readonly Range[] {
    let ranges = this.#parsed.get(entry);
    if (ranges === undefined) {
      const object = entry.object as ServiceCidr;
      ranges = isUsable(object) ? rangesOf(object.spec?.cidrs ?? []) : [];
      this.#parsed.set(entry, ranges);
    }
    return ranges;
  }

  #store(group: string, resource: string): StoredResource {
    return this.#options.stores.get(group, resource);
  }
}

function rangesOf(cidrs: readonly string[]): readonly Range[] {
  return cidrs.flatMap((text) => {
    const cidr = parseCidr(text);
    return cidr === undefined ? [] : [{ text, family: cidr.family === 6 ? 'IPv6' : 'IPv4', cidr } as const];
  });
}

/**
 * Returns whether the range may be used. A range without the condition Ready counts, because the controller that sets the
 * condition may not be running.
 */
function isUsable({ metadata, status }: ServiceCidr): boolean {
  if (metadata.deletionTimestamp !== undefined) return false;
  return (status?.conditions ?? []).find(({ type }) => type === 'Ready')?.status !== 'False';
}

/** Returns the number of assignable addresses: not the network address, nor the broadcast address of IPv4. */
function assignable(cidr: Cidr): number {
  const size = cidrSize(cidr) > MAX_ADDRESSES ? MAX_ADDRESSES : cidrSize(cidr);
  return Math.max(0, Number(size) - (cidr.family === 4 ? 2 : 1));
}

function isAssignable(cidr: Cidr, address: bigint): boolean {
  const last = cidr.base + cidrSize(cidr) - (cidr.family === 4 ? 2n : 1n);
  return address > cidr.base && address <= last;
}

function canonical(address: string): string {
  return canonicalIp(address) ?? address;
}
