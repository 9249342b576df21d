/** Computes the addresses of the service range that have a fixed index, such as the address of the service `kubernetes`. */
import { cidrAddress, cidrSize, parseCidr } from '../../../api/meta/ip-addresses.ts';

/** Returns the address with this index in the first of `ranges`; `undefined` if there is no range, or if it is too small. */
export function serviceAddress(ranges: readonly string[], index: number): string | undefined {
  const range = parseCidr(ranges[0] ?? '');
  return range === undefined || cidrSize(range) <= BigInt(index) + 1n ? undefined : cidrAddress(range, index);
}
