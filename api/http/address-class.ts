/** Classifies IP addresses for a server that dials addresses which others chose. Pure. */
import { isIP } from 'node:net';
import { ipBytes } from '../pki/names.ts';

/** The classes that a purpose may refuse. `metadata` are the metadata services of clouds. */
export type AddressClass = 'unspecified' | 'loopback' | 'link-local' | 'multicast' | 'metadata';

/** The addresses at which clouds serve the credentials of a machine to every local client. */
const METADATA = [
  '169.254.169.254',
  '169.254.170.2',
  '169.254.170.23',
  '169.254.0.23',
  '169.254.42.42',
  '100.100.100.200',
  '168.63.129.16',
  '192.0.0.192',
  'fd00:ec2::254',
  'fd00:ec2::23',
  'fd20:ce::254',
  'fd00:42::42',
  'fd00:a9fe:a9fe::1',
  'fd00:c1::a9fe:a9fe',
  'fd00:100::100:200',
  'fe80::a9fe:a9fe',
] as const;

/** The metadata addresses by their bytes, built on first use. */
let metadata: ReadonlySet<string> | undefined;
const isMetadata = (hex: string): boolean => {
  metadata ??= new Set(METADATA.map((address) => ipBytes(address).toString('hex')));
  return metadata.has(hex);
};

const ZEROES = '0'.repeat(24);
/**
 * The prefixes of IPv6 addresses that contain an IPv4 address, and the offset of its first byte: mapped, compatible, translated
 * (RFC 2765), NAT64 (RFC 6052), 6to4.
 */
const EMBEDDING: readonly (readonly [prefix: string, at: number])[] = [
  [`${'0'.repeat(20)}ffff`, 12],
  [ZEROES, 12],
  ['0000000000000000ffff0000', 12],
  ['0064ff9b0000000000000000', 12],
  ['2002', 2],
];

/** The prefix of local NAT64 translators (RFC 8215), which choose the length of theirs within it. */
const LOCAL_NAT64 = '0064ff9b0001';
/** The offsets of the bytes of an IPv4 address by that length (RFC 6052, section 2.2). Byte 8 is zero in the shorter ones. */
const NAT64_LAYOUTS: readonly (readonly number[])[] = [
  [6, 7, 9, 10],
  [7, 9, 10, 11],
  [9, 10, 11, 12],
  [12, 13, 14, 15],
];

/** Returns the classes of an address. An IPv4 address inside an IPv6 address counts as itself. */
export function addressClasses(address: string): readonly AddressClass[] {
  const text = bareAddress(address);
  if (isIP(text) === 0) return [];
  const bytes = ipBytes(text);
  const hex = bytes.toString('hex');
  const found = new Set<AddressClass>(bytes.length === 4 ? classesOf4(bytes) : classesOf6(bytes, hex));
  if (isMetadata(hex)) found.add('metadata');
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
  if (isMetadata(bytes.toString('hex'))) found.push('metadata');
  return found;
}

function classesOf6(bytes: Buffer, hex: string): AddressClass[] {
  if (hex === '0'.repeat(32)) return ['unspecified'];
  if (hex === `${'0'.repeat(31)}1`) return ['loopback'];
  const [first = 0, second = 0] = bytes;
  if (first === 0xff) return ['multicast'];
  if (first === 0xfe && (second & 0xc0) === 0x80) return ['link-local'];
  if (hex.startsWith(LOCAL_NAT64)) return translatedClasses(bytes);
  const embedding = EMBEDDING.find(([prefix]) => hex.startsWith(prefix));
  return embedding === undefined ? [] : classesOf4(bytes.subarray(embedding[1], embedding[1] + 4));
}

/** Returns the classes of all IPv4 addresses that a local translator may read in the address. */
function translatedClasses(bytes: Buffer): AddressClass[] {
  const isZero = (from: number, to = bytes.length): boolean => bytes.subarray(from, to).every((byte) => byte === 0);
  return NAT64_LAYOUTS.flatMap((layout) => {
    const end = (layout.at(-1) ?? 0) + 1;
    const isLongest = end === bytes.length;
    if (!isLongest && (bytes[8] !== 0 || !isZero(end))) return [];
    const found = classesOf4(Buffer.from(layout.map((at) => bytes[at] ?? 0)));
    return isLongest && isZero(9, 12) ? found : found.filter((one) => one !== 'unspecified');
  });
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
