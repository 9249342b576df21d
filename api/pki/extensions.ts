/**
 * Reads and writes the X.509 extensions key usage, extended key usage and basic constraints, and has the object identifiers of
 * further ones.
 */
import * as der from './der.ts';

/** The object identifiers of the extensions (RFC 5280, section 4.2.1). */
export const EXTENSION = {
  subjectKeyId: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  nameConstraints: '2.5.29.30',
  authorityKeyId: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
} as const;

/** An extension with the DER of its value. */
export interface Extension {
  readonly oid: string;
  readonly critical: boolean;
  readonly value: Buffer;
}

/** The names in the order of their bits. */
export const KEY_USAGES = [
  'digital signature',
  'content commitment',
  'key encipherment',
  'data encipherment',
  'key agreement',
  'cert sign',
  'crl sign',
  'encipher only',
  'decipher only',
] as const;

/** A bit of the key usage extension. */
export type KeyUsage = (typeof KEY_USAGES)[number];

/** The object identifiers of extended key usages, by their names in the API of certificates. */
export const EXTENDED_KEY_USAGES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    any: '2.5.29.37.0',
    'server auth': '1.3.6.1.5.5.7.3.1',
    'client auth': '1.3.6.1.5.5.7.3.2',
    'code signing': '1.3.6.1.5.5.7.3.3',
    'email protection': '1.3.6.1.5.5.7.3.4',
    's/mime': '1.3.6.1.5.5.7.3.4',
    'ipsec end system': '1.3.6.1.5.5.7.3.5',
    'ipsec tunnel': '1.3.6.1.5.5.7.3.6',
    'ipsec user': '1.3.6.1.5.5.7.3.7',
    timestamping: '1.3.6.1.5.5.7.3.8',
    'ocsp signing': '1.3.6.1.5.5.7.3.9',
    'microsoft sgc': '1.3.6.1.4.1.311.10.3.3',
    'netscape sgc': '2.16.840.1.113730.4.1',
  }),
);

/** Whether the name is one of a key usage. */
export function isKeyUsage(name: string): name is KeyUsage {
  return (KEY_USAGES as readonly string[]).includes(name);
}

/** Encodes an extension. */
export function writeExtension(extension: Extension): Buffer {
  return der.sequence(
    der.oid(extension.oid),
    ...(extension.critical ? [der.boolean(true)] : []),
    der.octetString(extension.value),
  );
}

/** Reads the sequence of extensions of a certificate or request (RFC 5280, section 4.1). Throws `DerError`. */
export function readExtensions(list: der.DerElement): Extension[] {
  return der.readAll(der.expect(list, der.TAG.sequence).content).map((item) => {
    const [id, second, third] = der.readAll(der.expect(item, der.TAG.sequence).content);
    if (id === undefined || second === undefined) throw new der.DerError('an extension is truncated');
    const critical = second.tag === der.TAG.boolean && der.readBoolean(second);
    const value = der.expect(second.tag === der.TAG.boolean ? third : second, der.TAG.octetString);
    return { oid: der.readOid(id), critical, value: value.content };
  });
}

/** Returns the extension with these key usages, which is critical. */
export function keyUsageExtension(usages: readonly KeyUsage[]): Extension {
  let bits = 0;
  for (const usage of usages) bits |= 1 << (15 - KEY_USAGES.indexOf(usage));
  const bytes = (bits & 0xff) === 0 ? Buffer.from([bits >> 8]) : Buffer.from([bits >> 8, bits & 0xff]);
  let unused = 0;
  const last = bytes.at(-1) ?? 0;
  while (unused < 8 && last !== 0 && (last & (1 << unused)) === 0) unused++;
  return { oid: EXTENSION.keyUsage, critical: true, value: der.bitString(bytes, unused) };
}

/** Returns the key usages of a KeyUsage extension. Throws a `DerError` for another value. */
export function readKeyUsages(value: Buffer): KeyUsage[] {
  const [, ...bytes] = der.readSingle(value, der.TAG.bitString).content;
  return KEY_USAGES.filter((_, i) => (((bytes[Math.floor(i / 8)] ?? 0) >> (7 - (i % 8))) & 1) === 1);
}

/** Returns the extension with these extended key usages, which is not critical. */
export function extendedKeyUsageExtension(oids: readonly string[]): Extension {
  return { oid: EXTENSION.extendedKeyUsage, critical: false, value: der.sequence(...oids.map(der.oid)) };
}

/** Returns the object identifiers of an ExtendedKeyUsage extension. Throws a `DerError` for another value. */
export function readExtendedKeyUsages(value: Buffer): string[] {
  return der.readAll(der.readSingle(value, der.TAG.sequence).content).map(der.readOid);
}

/** Whether the certificate is one of a CA, and how many CAs may follow it. */
export interface BasicConstraints {
  readonly isCa: boolean;
  readonly maxPathLength?: number;
}

/** Returns the extension with these constraints, which is critical. */
export function basicConstraintsExtension(constraints: BasicConstraints): Extension {
  const parts: Buffer[] = [];
  if (constraints.isCa) parts.push(der.boolean(true));
  if (constraints.maxPathLength !== undefined) parts.push(der.integer(constraints.maxPathLength));
  return { oid: EXTENSION.basicConstraints, critical: true, value: der.sequence(...parts) };
}

/** Reads the value of the extension basicConstraints (RFC 5280, section 4.2.1.9). Throws `DerError`. */
export function readBasicConstraints(value: Buffer): BasicConstraints {
  const parts = der.readAll(der.readSingle(value, der.TAG.sequence).content);
  const first = parts[0];
  const isCa = first?.tag === der.TAG.boolean && der.readBoolean(first);
  const length = first?.tag === der.TAG.boolean ? parts[1] : first;
  if (length === undefined) return { isCa };
  const bytes = der.expect(length, der.TAG.integer).content;
  if (bytes.length === 0 || bytes.length > 6) throw new der.DerError('a path length does not fit');
  return { isCa, maxPathLength: bytes.readUIntBE(0, bytes.length) };
}
