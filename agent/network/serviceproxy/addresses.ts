/**
 * Normalizes the addresses and ranges of services for rules. The API also accepts white space around ranges and leading
 * zeros in addresses. Unchanged, these would break the transaction that contains the rules of all services. Pure.
 */
import { isIPv4, isIPv6 } from 'node:net';
import { cidrContains, parseCidr, parseIp } from '../../../api/meta/ip-addresses.ts';

/** The address family of rules, with the names of the Service API. */
export type Family = 'IPv4' | 'IPv6';

/** The address of a host for itself. */
export const LOOPBACK: Readonly<Record<Family, string>> = { IPv4: '127.0.0.1', IPv6: '::1' };

/** Returns the family of a valid address. */
export const familyOf = (address: string): Family => (address.includes(':') ? 'IPv6' : 'IPv4');

/** Ranges that contain the source address of no packet. */
const MATCHES_NOTHING = { IPv4: '0.0.0.0/32', IPv6: '::/128' } as const;

/** Returns the canonical form of the address, or `undefined` if the text is no address of this family. */
export function canonicalAddress(text: string, family: Family): string | undefined {
  if (family === 'IPv6')
    return isIPv6(text) && !text.includes('%') ? new URL(`http://[${text}]`).hostname.slice(1, -1) : undefined;
  if (!/^\d{1,6}(\.\d{1,6}){3}$/.test(text)) return undefined;
  const address = text.split('.').map(Number).join('.');
  return isIPv4(address) ? address : undefined;
}

/**
 * Returns the range in its short form, or `undefined` for a range of the other family. An invalid range becomes one that no
 * packet matches. If it were left out, the load balancer could be without ranges, which allows every client.
 */
export function canonicalRange(text: string, family: Family): string | undefined {
  const [address = '', bits = ''] = text.trim().split('/');
  const other = family === 'IPv4' ? 'IPv6' : 'IPv4';
  const isLength = (most: number): boolean => /^\d{1,3}$/.test(bits) && Number(bits) <= most;
  if (canonicalAddress(address, other) !== undefined && isLength(other === 'IPv4' ? 32 : 128)) return undefined;
  const network = canonicalAddress(address, family);
  return network !== undefined && isLength(family === 'IPv4' ? 32 : 128)
    ? `${network}/${Number(bits)}`
    : MATCHES_NOTHING[family];
}

/** Whether the range contains the address. Both are in canonical form. */
export function isWithin(address: string, range: string): boolean {
  const [cidr, ip] = [parseCidr(range), parseIp(address)];
  return cidr !== undefined && ip !== undefined && cidrContains(cidr, ip);
}
