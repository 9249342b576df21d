/** Reads and writes distinguished names and subject alternative names of certificates and requests. */
import * as der from './der.ts';
import { isIPv4 } from 'node:net';

/** The user and the groups that a client certificate stands for. */
export interface DistinguishedName {
  readonly commonName?: string;
  readonly organizations?: readonly string[];
}

/** A parsed name, with every attribute by its OID in the original order. */
export interface ParsedName {
  readonly commonName: string;
  readonly organizations: readonly string[];
  readonly attributes: readonly { readonly oid: string; readonly value: string }[];
  readonly raw: Buffer;
}

/** The names and addresses that a serving certificate is valid for. */
export interface AlternativeNames {
  readonly dns?: readonly string[];
  readonly ip?: readonly string[];
  readonly email?: readonly string[];
  readonly uri?: readonly string[];
}

/** The object identifier of the common name. */
export const COMMON_NAME = '2.5.4.3';
const ORGANIZATION = '2.5.4.10';

/** Encodes a name; organizations come first, as Go's crypto/x509 writes them. */
export function writeName(name: DistinguishedName): Buffer {
  const rdns: Buffer[] = [];
  const attribute = (oid: string, value: string): Buffer => der.sequence(der.oid(oid), der.utf8String(value));
  const organizations = name.organizations ?? [];
  if (organizations.length > 0) rdns.push(der.setOf(...organizations.map((value) => attribute(ORGANIZATION, value))));
  if (name.commonName !== undefined && name.commonName !== '')
    rdns.push(der.setOf(attribute(COMMON_NAME, name.commonName)));
  return der.sequence(...rdns);
}

/** Parses a name. Throws a `DerError` for an element that is not a name. */
export function readName(element: der.DerElement): ParsedName {
  const attributes: { oid: string; value: string }[] = [];
  for (const rdn of der.readAll(der.expect(element, der.TAG.sequence).content)) {
    for (const pair of der.readAll(der.expect(rdn, der.TAG.set).content)) {
      const [type, value] = der.readAll(der.expect(pair, der.TAG.sequence).content);
      if (type === undefined || value === undefined) throw new der.DerError('an attribute of a name is truncated');
      attributes.push({ oid: der.readOid(type), value: der.readText(value) });
    }
  }
  const valuesOf = (oid: string): string[] => attributes.filter((item) => item.oid === oid).map((item) => item.value);
  return {
    commonName: valuesOf(COMMON_NAME).at(-1) ?? '',
    organizations: valuesOf(ORGANIZATION),
    attributes,
    raw: element.whole,
  };
}

/** Returns 4 bytes for IPv4 and 16 bytes for IPv6. Throws `DerError` for another text. */
export function ipBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split('.').map(Number));
  const groups = ipv6Groups(address.replace(/%[\w.:-]+$/, ''));
  if (groups === undefined) throw new der.DerError(`"${address}" is not an IP address`);
  const out = Buffer.alloc(16);
  groups.forEach((group, at) => out.writeUInt16BE(group, at * 2));
  return out;
}

/** Returns the eight groups of an IPv6 address, or `undefined` for another text. */
function ipv6Groups(address: string): number[] | undefined {
  const halves = withoutDots(address).split('::');
  const [head = [], tail = []] = halves.map((half) => (half === '' ? [] : half.split(':')));
  const missing = 8 - head.length - tail.length;
  if (halves.length > 2 || (halves.length === 2 ? missing < 1 : missing !== 0)) return undefined;
  const groups = [...head, ...Array.from({ length: missing }, () => '0'), ...tail];
  return groups.every((group) => /^[\da-f]{1,4}$/i.test(group))
    ? groups.map((group) => Number.parseInt(group, 16))
    : undefined;
}

/** Writes an IPv4 address at the end of an IPv6 address as two groups. */
function withoutDots(address: string): string {
  const at = address.lastIndexOf(':') + 1;
  const last = address.slice(at);
  if (at === 0 || !isIPv4(last)) return address;
  const bytes = Buffer.from(last.split('.').map(Number)).toString('hex');
  return `${address.slice(0, at)}${bytes.slice(0, 4)}:${bytes.slice(4)}`;
}

/** Returns the text of an IP address of 4 or 16 bytes. Throws `DerError` for another length. */
export function ipText(bytes: Buffer): string {
  if (bytes.length === 4) return [...bytes].join('.');
  if (bytes.length !== 16) throw new der.DerError('an IP address has an invalid length');
  const words = Array.from({ length: 8 }, (_, i) => bytes.readUInt16BE(i * 2).toString(16));
  // WHATWG URLs format IPv6 addresses canonically (RFC 5952).
  return new URL(`http://[${words.join(':')}]/`).hostname.slice(1, -1);
}

/** Encodes the value of the extension subjectAltName. */
export function writeAlternativeNames(names: AlternativeNames): Buffer {
  const text = (n: number, value: string): Buffer => der.tlv(der.primitiveContextTag(n), Buffer.from(value, 'latin1'));
  return der.sequence(
    ...(names.dns ?? []).map((name) => text(2, name)),
    ...(names.email ?? []).map((name) => text(1, name)),
    ...(names.ip ?? []).map((address) => der.tlv(der.primitiveContextTag(7), ipBytes(address))),
    ...(names.uri ?? []).map((name) => text(6, name)),
  );
}

/** Parses the value of the extension subjectAltName. Names of other types are ignored. Throws a `DerError`. */
export function readAlternativeNames(value: Buffer): Required<AlternativeNames> {
  const names = { dns: [] as string[], ip: [] as string[], email: [] as string[], uri: [] as string[] };
  for (const element of der.readAll(der.readSingle(value, der.TAG.sequence).content)) {
    const text = element.content.toString('latin1');
    if (element.tag === der.primitiveContextTag(1)) names.email.push(text);
    else if (element.tag === der.primitiveContextTag(2)) names.dns.push(text);
    else if (element.tag === der.primitiveContextTag(6)) names.uri.push(text);
    else if (element.tag === der.primitiveContextTag(7)) names.ip.push(ipText(element.content));
  }
  return names;
}
