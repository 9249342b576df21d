/**
 * Addresses and ranges of services as netfilter's tools take them. The API also takes spaces and line ends around ranges, and
 * zeros before the numbers of addresses: as they are, they would break the input of `iptables-restore`, which holds the rules
 * of all services. Pure. `service-ports.ts` calls it for everything that becomes part of a rule.
 */
import { isIPv4, isIPv6 } from 'node:net';
import type { Family } from './service-ports.ts';

/** A range that no packet comes from. */
const NOWHERE = { IPv4: '0.0.0.0/32', IPv6: '::/128' } as const;

/** Returns `undefined` if the text is no address of this family. */
export function canonicalAddress(text: string, family: Family): string | undefined {
  if (family === 'IPv6') return isIPv6(text) && !text.includes('%') ? text : undefined;
  if (!/^\d{1,6}(\.\d{1,6}){3}$/.test(text)) return undefined;
  const address = text.split('.').map(Number).join('.');
  return isIPv4(address) ? address : undefined;
}

/**
 * Returns `undefined` for a range of the other family. A range that cannot be read becomes one that contains nobody, because
 * without any range a load balancer is open to all.
 */
export function canonicalRange(text: string, family: Family): string | undefined {
  const [address = '', bits = ''] = text.trim().split('/');
  const other = family === 'IPv4' ? 'IPv6' : 'IPv4';
  const isLength = (most: number): boolean => /^\d{1,3}$/.test(bits) && Number(bits) <= most;
  if (canonicalAddress(address, other) !== undefined && isLength(other === 'IPv4' ? 32 : 128)) return undefined;
  const network = canonicalAddress(address, family);
  return network !== undefined && isLength(family === 'IPv4' ? 32 : 128)
    ? `${network}/${Number(bits)}`
    : NOWHERE[family];
}
