/** Classifies IP addresses for a server that dials addresses which others chose. Pure. */
import { isIP } from 'node:net';
import { ipBytes } from '../pki/names.ts';

/** The classes that a purpose may refuse. `metadata` are the metadata services of clouds. */
export type AddressClass = 'unspecified' | 'loopback' | 'link-local' | 'multicast' | 'metadata';

/** The addresses at which clouds serve the credentials of a machine to every local client. */
const METADATA: ReadonlySet<string> = new Set(
  [
    '169.254.169.254',
    '169.254.170.2',
    '169.254.170.23',
    '100.100.100.200',
    '168.63.129.16',
    '192.0.0.192',
    'fd00:ec2::254',
    'fd00:ec2::23',
    'fd20:ce::254',
  ].map((address) => ipBytes(address).toString('hex')),
);

const ZEROES = '0'.repeat(24);
/**
 * The prefixes of IPv6 addresses that contain an IPv4 address, and the offset of its first byte: mapped, compatible, translated
 * (RFC 2765), NAT64 (RFC 6052 and, with a prefix of 96 bits, RFC 8215), 6to4.
 */
const EMBEDDING: readonly (readonly [prefix: string, at: number])[] = [
  [`${'0'.repeat(20)}ffff`, 12],
  [ZEROES, 12],
  ['0000000000000000ffff0000', 12],
  ['0064ff9b0000000000000000', 12],
  ['0064ff9b0001', 12],
  ['2002', 2],
];

/** Returns the classes of an address. An ordinary address has none. An IPv4 address inside an IPv6 address counts as itself. */
export function addressClasses(address: string): readonly AddressClass[] {
  const text = bareAddress(address);
  if (isIP(text) === 0) return [];
  const bytes = ipBytes(text);
  const hex = bytes.toString('hex');
  const found = new Set<AddressClass>(bytes.length === 4 ? classesOf4(bytes) : classesOf6(bytes, hex));
  if (METADATA.has(hex)) found.add('metadata');
  return [...found];
}

function classesOf4(bytes: Buffer): AddressClass[] {
  const [first = 0, second = 0] = bytes;
  const found: AddressClass[] = [];
  if (first === 0) found.push('unspecified');
  if (first === 127) found.push('loopback');
  if (first === 169 && second === 254) found.push('link-local');
  // The limited broadcast address also reaches many hosts.
  if ((first >= 224 && first <= 239) || bytes.every((byte) => byte === 255)) found.push('multicast');
  if (METADATA.has(bytes.toString('hex'))) found.push('metadata');
  return found;
}

function classesOf6(bytes: Buffer, hex: string): AddressClass[] {
  if (hex === '0'.repeat(32)) return ['unspecified'];
  if (hex === `${'0'.repeat(31)}1`) return ['loopback'];
  const [first = 0, second = 0] = bytes;
  if (first === 0xff) return ['multicast'];
  if (first === 0xfe && (second & 0xc0) === 0x80) return ['link-local'];
  const embedding = EMBEDDING.find(([prefix]) => hex.startsWith(prefix));
  return embedding === undefined ? [] : classesOf4(bytes.subarray(embedding[1], embedding[1] + 4));
}

/**
 * Returns the same text for all spellings of an address, also for an IPv4 address that is mapped into IPv6. Returns an empty
 * text if the text is not an address.
 */
export function addressKey(address: string): string {
  const text = bareAddress(address);
  if (isIP(text) === 0) return '';
  return ipBytes(text)
    .toString('hex')
    .replace(/^0{20}ffff/, '');
}

/** Removes the brackets of a URL and the zone of a link-local address. */
export function bareAddress(host: string): string {
  return host.replace(/^\[|\]$/g, '').replace(/%.*$/s, '');
}
