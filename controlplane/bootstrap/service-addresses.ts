/** Addresses of the service range that are known beforehand: by their place in it. */
import { cidrAddress, cidrSize, parseCidr } from '../../api/meta/ip-addresses.ts';

/** Of the first of `ranges`; undefined where it has no such place. */
export function serviceAddress(ranges: readonly string[], index: number): string | undefined {
  const range = parseCidr(ranges[0] ?? '');
  return range === undefined || cidrSize(range) <= BigInt(index) + 1n ? undefined : cidrAddress(range, index);
}
