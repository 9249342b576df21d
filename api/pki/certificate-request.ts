/** Creates and parses PKCS #10 certificate signing requests. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import * as der from './der.ts';
import { EXTENSION, readExtensions, writeExtension, type Extension } from './extensions.ts';
import {
  readAlternativeNames,
  readName,
  writeAlternativeNames,
  writeName,
  type AlternativeNames,
  type DistinguishedName,
  type ParsedName,
} from './names.ts';
import { readPem, writePem } from './pem.ts';
import { signed, verifySigned, type KeyPair } from './signing.ts';

const EXTENSION_REQUEST = '1.2.840.113549.1.9.14';

/** What a request asks for. */
export interface CertificateRequestTemplate {
  /** A name, or its DER. */
  readonly subject: DistinguishedName | Buffer;
  readonly names?: AlternativeNames;
  /** Extensions other than the subject alternative names. */
  readonly extensions?: readonly Extension[];
}

/** Creates a request that is signed with its own key. Returns PEM. */
export function createCsr(template: CertificateRequestTemplate, keys: KeyPair): string {
  const extensions = [...(template.extensions ?? [])];
  const { dns = [], ip = [], email = [], uri = [] } = template.names ?? {};
  if (dns.length + ip.length + email.length + uri.length > 0) {
    extensions.push({
      oid: EXTENSION.subjectAltName,
      critical: false,
      value: writeAlternativeNames(template.names ?? {}),
    });
  }
  const attributes =
    extensions.length === 0
      ? []
      : [der.sequence(der.oid(EXTENSION_REQUEST), der.setOf(der.sequence(...extensions.map(writeExtension))))];
  const body = der.sequence(
    der.integer(0),
    Buffer.isBuffer(template.subject) ? template.subject : writeName(template.subject),
    keys.publicKey.export({ type: 'spki', format: 'der' }),
    der.tlv(der.contextTag(0), ...attributes),
  );
  return writePem('CERTIFICATE REQUEST', signed(body, keys.privateKey));
}

/** A parsed request. Nothing in it can be trusted before its signature and its names are checked. */
export interface CertificateRequest {
  readonly subject: ParsedName;
  readonly publicKey: KeyObject;
  readonly extensions: readonly Extension[];
  readonly names: Required<AlternativeNames>;
  /** Whether the request is signed with the key that it contains. */
  readonly signatureValid: boolean;
}

/** Parses the first block of a PEM text. Throws `DerError` if it is not a request, and otherwise as `parseCsrDer` does. */
export function parseCsr(pem: string): CertificateRequest {
  const block = readPem(pem)[0];
  if (block === undefined || block.label !== 'CERTIFICATE REQUEST') {
    throw new der.DerError('PEM block type must be CERTIFICATE REQUEST');
  }
  return parseCsrDer(block.der);
}

/**
 * Parses a PKCS #10 request (RFC 2986). Throws `DerError` if it is malformed, or an error of node:crypto for an unsupported
 * key. An invalid signature is no error, and is reported in `signatureValid`.
 */
export function parseCsrDer(raw: Buffer): CertificateRequest {
  const parts = der.readAll(der.readSingle(raw, der.TAG.sequence).content);
  const [, subject, spki, attributes] = der.readAll(der.expect(parts[0], der.TAG.sequence).content);
  if (subject === undefined || spki === undefined) throw new der.DerError('a request is truncated');
  const publicKey = createPublicKey({ key: spki.whole, type: 'spki', format: 'der' });
  const extensions: Extension[] = [];
  for (const attribute of attributes === undefined ? [] : der.readAll(attributes.content)) {
    const [type, values] = der.readAll(der.expect(attribute, der.TAG.sequence).content);
    if (type === undefined || der.readOid(type) !== EXTENSION_REQUEST) continue;
    extensions.push(...readExtensions(der.readElement(der.expect(values, der.TAG.set).content)));
  }
  const san = extensions.find((extension) => extension.oid === EXTENSION.subjectAltName);
  return {
    subject: readName(subject),
    publicKey,
    extensions,
    names: san === undefined ? { dns: [], ip: [], email: [], uri: [] } : readAlternativeNames(san.value),
    signatureValid: verifySigned(parts, publicKey, 'request'),
  };
}
