/**
 * Reads the addresses that a runtime reports for a sandbox. They come from network plugins, and the API server refuses the
 * status of a pod with any other text, with a zone, or with two addresses of one family: the pod would never become ready.
 */
import { formatIp, parseIp } from '../../../api/meta/ip-addresses.ts';

/**
 * Returns the first address of each family in its canonical form; none if one of the addresses cannot be read, as in the
 * kubelet.
 */
export function podAddresses(reported: readonly string[]): readonly string[] {
  const found = new Map<4 | 6, string>();
  for (const text of reported.filter((entry) => entry !== '')) {
    const ip = parseIp(text);
    if (ip === undefined) return [];
    if (!found.has(ip.family)) found.set(ip.family, formatIp(ip));
  }
  return [...found.values()];
}
