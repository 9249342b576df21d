/**
 * Creates X.509 certificates with node:crypto, and parses the parts of certificates that the cluster's rules check.
 *
 * `chain.ts` verifies chains.
 */
import { createHash, createPublicKey, randomBytes, type KeyObject } from 'node:crypto';
import * as der from './der.ts';
import {
  EXTENDED_KEY_USAGES,
  EXTENSION,
  basicConstraintsExtension,
  extendedKeyUsageExtension,
  keyUsageExtension,
  readBasicConstraints,
  readExtendedKeyUsages,
  readExtensions,
  readKeyUsages,
  writeExtension,
  type BasicConstraints,
  type Extension,
  type KeyUsage,
} from './extensions.ts';
import {
  readAlternativeNames,
  readName,
  writeAlternativeNames,
  writeName,
  type AlternativeNames,
  type DistinguishedName,
  type ParsedName,
} from './names.ts';
import { algorithmOf, signed } from './signing.ts';
import { readPem, writePem } from './pem.ts';

/** The contents of a certificate to be issued. */
export interface CertificateTemplate {
  /** A name, or the DER of a request's subject, which is copied unchanged. */
  readonly subject: DistinguishedName | Buffer;
  readonly publicKey: KeyObject;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  readonly names?: AlternativeNames;
  readonly keyUsages?: readonly KeyUsage[];
  /** Names of `EXTENDED_KEY_USAGES`, or OIDs. */
  readonly extendedKeyUsages?: readonly string[];
  /** If absent, the certificate has no basic constraints. */
  readonly basicConstraints?: BasicConstraints;
  /** If absent, a random serial number of 16 bytes is used. */
  readonly serialNumber?: Uint8Array;
}

interface Issuer {
  readonly privateKey: KeyObject;
  /** If absent, the certificate is self-signed. */
  readonly certificate?: Certificate;
}

/** Creates a certificate that is signed by `issuer`. Returns DER. */
export function createCertificate(template: CertificateTemplate, issuer: Issuer): Buffer {
  const subject = Buffer.isBuffer(template.subject) ? template.subject : writeName(template.subject);
  const spki = template.publicKey.export({ type: 'spki', format: 'der' });
  const subjectKeyId = keyIdOf(spki);
  const authorityKeyId = issuer.certificate?.subjectKeyId;
  const extensions = extensionsOf(template, subject);
  if (template.basicConstraints?.isCa === true) {
    extensions.push({ oid: EXTENSION.subjectKeyId, critical: false, value: der.octetString(subjectKeyId) });
  }
  if (authorityKeyId !== undefined) {
    const value = der.sequence(der.tlv(der.primitiveContextTag(0), authorityKeyId));
    extensions.push({ oid: EXTENSION.authorityKeyId, critical: false, value });
  }
  const serial = Buffer.from(template.serialNumber ?? randomBytes(16));
  if (template.serialNumber === undefined) serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
  const toBeSigned = der.sequence(
    der.tlv(der.contextTag(0), der.integer(2)),
    der.integer(serial),
    algorithmOf(issuer.privateKey).identifier,
    issuer.certificate?.subject.raw ?? subject,
    der.sequence(der.time(template.notBeforeMs), der.time(template.notAfterMs)),
    subject,
    spki,
    ...(extensions.length === 0 ? [] : [der.tlv(der.contextTag(3), der.sequence(...extensions.map(writeExtension)))]),
  );
  return signed(toBeSigned, issuer.privateKey);
}

function extensionsOf(template: CertificateTemplate, subject: Buffer): Extension[] {
  const extensions: Extension[] = [];
  const usages = template.keyUsages ?? [];
  if (usages.length > 0) extensions.push(keyUsageExtension(usages));
  const extended = template.extendedKeyUsages ?? [];
  if (extended.length > 0)
    extensions.push(extendedKeyUsageExtension(extended.map((name) => EXTENDED_KEY_USAGES.get(name) ?? name)));
  if (template.basicConstraints !== undefined) extensions.push(basicConstraintsExtension(template.basicConstraints));
  const { dns = [], ip = [], email = [], uri = [] } = template.names ?? {};
  if (dns.length + ip.length + email.length + uri.length > 0) {
    // The extension is critical if the subject is empty (RFC 5280, 4.2.1.6).
    extensions.push({
      oid: EXTENSION.subjectAltName,
      critical: subject.length === 2,
      value: writeAlternativeNames(template.names ?? {}),
    });
  }
  return extensions;
}

/** Returns the SHA-1 hash of the key's bits (RFC 5280, 4.2.1.2, method 1). It is only an identifier. */
function keyIdOf(spki: Buffer): Buffer {
  const [, bits] = der.readAll(der.readSingle(spki, der.TAG.sequence).content);
  return createHash('sha1').update(der.expect(bits, der.TAG.bitString).content.subarray(1)).digest();
}

/** A parsed certificate. */
export interface Certificate {
  readonly raw: Buffer;
  readonly serialNumber: Buffer;
  readonly issuer: ParsedName;
  readonly subject: ParsedName;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  readonly publicKey: KeyObject;
  readonly extensions: readonly Extension[];
  readonly keyUsages: readonly KeyUsage[] | undefined;
  /** OIDs. `undefined` means that the certificate is valid for every use. */
  readonly extendedKeyUsages: readonly string[] | undefined;
  readonly basicConstraints: BasicConstraints | undefined;
  readonly names: Required<AlternativeNames>;
  readonly subjectKeyId: Buffer | undefined;
  readonly authorityKeyId: Buffer | undefined;
  /** The signed part, the algorithm and the signature, for `verifySigned`. */
  readonly parts: readonly der.DerElement[];
}

/** Parses the DER of a certificate. Throws `DerError`, or an error of node:crypto for an unsupported key. */
export function parseCertificate(raw: Buffer): Certificate {
  const parts = der.readAll(der.readSingle(raw, der.TAG.sequence).content);
  const body = der.readAll(der.expect(parts[0], der.TAG.sequence).content);
  if (body[0]?.tag === der.contextTag(0)) body.shift();
  const [serial, , issuer, validity, subject, spki, ...optional] = body;
  if (subject === undefined || issuer === undefined || spki === undefined)
    throw new der.DerError('a certificate is truncated');
  const [notBefore, notAfter] = der.readAll(der.expect(validity, der.TAG.sequence).content);
  if (notBefore === undefined || notAfter === undefined) throw new der.DerError('a validity is truncated');
  const list = optional.find((element) => element.tag === der.contextTag(3));
  const extensions = list === undefined ? [] : readExtensions(der.readElement(list.content));
  const value = (oid: string): Buffer | undefined => extensions.find((extension) => extension.oid === oid)?.value;
  const read = <T>(oid: string, reader: (bytes: Buffer) => T): T | undefined => {
    const bytes = value(oid);
    return bytes === undefined ? undefined : reader(bytes);
  };
  return {
    raw,
    serialNumber: der.expect(serial, der.TAG.integer).content,
    issuer: readName(issuer),
    subject: readName(subject),
    notBeforeMs: der.readTime(notBefore),
    notAfterMs: der.readTime(notAfter),
    publicKey: createPublicKey({ key: spki.whole, type: 'spki', format: 'der' }),
    extensions,
    keyUsages: read(EXTENSION.keyUsage, readKeyUsages),
    extendedKeyUsages: read(EXTENSION.extendedKeyUsage, readExtendedKeyUsages),
    basicConstraints: read(EXTENSION.basicConstraints, readBasicConstraints),
    names: read(EXTENSION.subjectAltName, readAlternativeNames) ?? { dns: [], ip: [], email: [], uri: [] },
    subjectKeyId: read(EXTENSION.subjectKeyId, (bytes) => der.readSingle(bytes, der.TAG.octetString).content),
    authorityKeyId: read(
      EXTENSION.authorityKeyId,
      (bytes) =>
        der
          .readAll(der.readSingle(bytes, der.TAG.sequence).content)
          .find((item) => item.tag === der.primitiveContextTag(0))?.content,
    ),
    parts,
  };
}

/** Parses every `CERTIFICATE` block of a bundle. Throws as `parseCertificate` does. */
export function parseCertificates(pem: string): Certificate[] {
  return readPem(pem)
    .filter((block) => block.label === 'CERTIFICATE')
    .map((block) => parseCertificate(block.der));
}

/** Returns the PEM form of a certificate's DER. */
export const certificatePem = (raw: Uint8Array): string => writePem('CERTIFICATE', raw);
