/**
 * Parses, formats and compares IP addresses and CIDRs.
 *
 * `parseIp` accepts leading zeros in IPv4, which stored objects may contain. The `…Errors` functions report what
 * validation rejects. An IPv4-mapped IPv6 address counts as IPv4.
 */
import { invalid, type FieldError } from './field-error.ts';

/** An address as a number of 32 or 128 bits. */
export interface Ip {
  readonly family: 4 | 6;
  readonly value: bigint;
  /** Whether the address was written in the form of IPv6, such as `::ffff:1.2.3.4`. Its family is 4. */
  readonly mapped: boolean;
}

/** A block of addresses. */
export interface Cidr {
  readonly family: 4 | 6;
  /** The first address of the block. */
  readonly base: bigint;
  readonly prefixLength: number;
  /** The address as written, which may have bits after the prefix. */
  readonly address: Ip;
}

const MAPPED_PREFIX = 0xffffn << 32n;
const BITS = { 4: 32, 6: 128 } as const;

/** Parses an address. Returns `undefined` if the text is none. */
export function parseIp(text: string): Ip | undefined {
  if (!text.includes(':')) {
    const value = parseIpv4(text);
    return value === undefined ? undefined : { family: 4, value, mapped: false };
  }
  const value = parseIpv6(text);
  if (value === undefined) return undefined;
  if (value >> 32n === 0xffffn) return { family: 4, value: value - MAPPED_PREFIX, mapped: true };
  return { family: 6, value, mapped: false };
}

function parseIpv4(text: string): bigint | undefined {
  const parts = text.split('.');
  if (parts.length !== 4) return undefined;
  let value = 0n;
  for (const part of parts) {
    if (!/^[0-9]+$/.test(part) || Number(part) > 255) return undefined;
    value = (value << 8n) | BigInt(Number(part));
  }
  return value;
}

function parseIpv6(text: string): bigint | undefined {
  const halves = text.split('::');
  if (halves.length > 2) return undefined;
  const head = parseGroups(halves[0] ?? '', halves.length === 1);
  const tail = halves.length === 2 ? parseGroups(halves[1] ?? '', true) : [];
  if (head === undefined || tail === undefined) return undefined;
  const missing = 8 - head.length - tail.length;
  if (halves.length === 2 ? missing < 1 : missing !== 0) return undefined;
  let value = 0n;
  for (const group of [...head, ...Array.from({ length: missing }, () => 0), ...tail]) {
    value = (value << 16n) | BigInt(group);
  }
  return value;
}

/**
 * Parses a part of an IPv6 address. With `last`, the part may end in a dotted IPv4 address. Returns `undefined` for other
 * texts.
 */
function parseGroups(text: string, last: boolean): number[] | undefined {
  if (text === '') return [];
  const parts = text.split(':');
  const groups: number[] = [];
  for (const [index, part] of parts.entries()) {
    if (last && index === parts.length - 1 && part.includes('.')) {
      const ipv4 = parseIpv4(part);
      if (ipv4 === undefined) return undefined;
      groups.push(Number(ipv4 >> 16n), Number(ipv4 & 0xffffn));
    } else if (/^[0-9a-fA-F]{1,4}$/.test(part)) groups.push(Number.parseInt(part, 16));
    else return undefined;
  }
  return groups;
}

/** Returns the canonical form; for IPv6 that of RFC 5952. */
export function formatIp(ip: { readonly family: 4 | 6; readonly value: bigint }): string {
  if (ip.family === 4) return [24n, 16n, 8n, 0n].map((shift) => (ip.value >> shift) & 255n).join('.');
  const groups = Array.from({ length: 8 }, (_, index) => Number((ip.value >> BigInt(112 - 16 * index)) & 0xffffn));
  const gap = longestZeros(groups);
  const hex = (part: number[]): string => part.map((group) => group.toString(16)).join(':');
  if (gap.length < 2) return hex(groups);
  return `${hex(groups.slice(0, gap.start))}::${hex(groups.slice(gap.start + gap.length))}`;
}

/** Returns the first of the longest runs of zero groups. */
function longestZeros(groups: readonly number[]): { start: number; length: number } {
  let best = { start: 0, length: 0 };
  let start = 0;
  groups.forEach((group, index) => {
    if (group !== 0) start = index + 1;
    else if (index + 1 - start > best.length) best = { start, length: index + 1 - start };
  });
  return best;
}

/** Returns the canonical text of an address, or `undefined` if the text is not an address. */
export function canonicalIp(text: string): string | undefined {
  const ip = parseIp(text);
  return ip === undefined ? undefined : formatIp(ip);
}

/** Parses a block, such as `10.0.0.0/8`. Returns `undefined` if the text is none. */
export function parseCidr(text: string): Cidr | undefined {
  const slash = text.indexOf('/');
  if (slash === -1) return undefined;
  const length = text.slice(slash + 1);
  const address = parseIp(text.slice(0, slash));
  if (address === undefined || !/^[0-9]+$/.test(length)) return undefined;
  // The prefix length of an IPv4-mapped address counts all 128 bits.
  const prefixLength = Number(length) - (address.mapped ? 96 : 0);
  const bits = BITS[address.family];
  if (prefixLength > bits || prefixLength < 0) return undefined;
  const hostBits = BigInt(bits - prefixLength);
  return { family: address.family, base: (address.value >> hostBits) << hostBits, prefixLength, address };
}

/** Returns the canonical form, without bits after the prefix. */
export function formatCidr(cidr: Cidr): string {
  return `${formatIp({ family: cidr.family, value: cidr.base })}/${cidr.prefixLength}`;
}

/** Returns the number of addresses. */
export function cidrSize(cidr: Cidr): bigint {
  return 1n << BigInt(BITS[cidr.family] - cidr.prefixLength);
}

/** Whether the block has the address. Families never mix. */
export function cidrContains(cidr: Cidr, ip: Ip): boolean {
  return cidr.family === ip.family && ip.value >= cidr.base && ip.value < cidr.base + cidrSize(cidr);
}

/** Whether `inner` lies within `outer`. Equal blocks count. */
export function cidrCovers(outer: Cidr, inner: Cidr): boolean {
  return (
    outer.family === inner.family &&
    outer.prefixLength <= inner.prefixLength &&
    inner.base >= outer.base &&
    inner.base < outer.base + cidrSize(outer)
  );
}

/** Returns the address at the given offset from the first address. The caller keeps it within the block. */
export function cidrAddress(cidr: Cidr, index: bigint | number): string {
  return formatIp({ family: cidr.family, value: cidr.base + BigInt(index) });
}

const IP_TEXT = 'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)';
const CIDR_TEXT = 'must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)';

const hasLeadingZeros = (address: string): boolean =>
  /(?:^|[.:])0[0-9]+(?:\.|$)/.test(address) && address.includes('.');

/** Validates an address. Leading zeros and IPv4-mapped addresses are errors, as in new objects of Kubernetes. */
export function ipErrors(field: string, text: string): FieldError[] {
  const ip = parseIp(text);
  if (ip === undefined) return [invalid(field, text, IP_TEXT)];
  if (hasLeadingZeros(text)) return [invalid(field, text, 'must not have leading 0s')];
  return ip.mapped ? [invalid(field, text, 'must not be an IPv4-mapped IPv6 address')] : [];
}

/** Validates a block as strictly as `ipErrors`, and refuses bits that are set beyond the prefix length. */
export function cidrErrors(field: string, text: string): FieldError[] {
  const errors = cidrFormErrors(field, text);
  const cidr = parseCidr(text);
  if (errors.length > 0 || cidr === undefined || cidr.address.value === cidr.base) return errors;
  return [invalid(field, text, 'must not have bits set beyond the prefix length')];
}

/** Validates how a range is written, but not which bits are set. */
export function cidrFormErrors(field: string, text: string): FieldError[] {
  const cidr = parseCidr(text);
  if (cidr === undefined) return [invalid(field, text, CIDR_TEXT)];
  const slash = text.indexOf('/');
  if (hasLeadingZeros(text.slice(0, slash)) || /^0[0-9]/.test(text.slice(slash + 1))) {
    return [invalid(field, text, 'must not have leading 0s in IP or prefix length')];
  }
  return cidr.address.mapped ? [invalid(field, text, 'must not have an IPv4-mapped IPv6 address')] : [];
}

const LOOPBACK = [parseCidr('127.0.0.0/8'), parseCidr('::1/128')];
const LINK_LOCAL = [parseCidr('169.254.0.0/16'), parseCidr('fe80::/10')];
const LINK_LOCAL_MULTICAST = [parseCidr('224.0.0.0/24'), parseCidr('ff02::/16')];
const MULTICAST = [parseCidr('224.0.0.0/4'), parseCidr('ff00::/8')];

const inAny = (blocks: readonly (Cidr | undefined)[], ip: Ip): boolean =>
  blocks.some((block) => block !== undefined && cidrContains(block, ip));

/** Whether the address is in 127.0.0.0/8 or is ::1. */
export const isLoopback = (ip: Ip): boolean => inAny(LOOPBACK, ip);
/** Whether the address is in 169.254.0.0/16 or fe80::/10. */
export const isLinkLocalUnicast = (ip: Ip): boolean => inAny(LINK_LOCAL, ip);
/** Whether the address is in 224.0.0.0/24 or ff02::/16. */
export const isLinkLocalMulticast = (ip: Ip): boolean => inAny(LINK_LOCAL_MULTICAST, ip);
/** Whether the address is in 224.0.0.0/4 or ff00::/8. */
export const isMulticast = (ip: Ip): boolean => inAny(MULTICAST, ip);
/** Whether the address is 0.0.0.0 or ::. */
export const isUnspecified = (ip: Ip): boolean => ip.value === 0n;
