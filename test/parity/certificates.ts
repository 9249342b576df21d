/** Creates the certificates that scenarios present, and extracts the compared parts of issued certificates and tokens. */
import { createHash, X509Certificate, type KeyObject } from 'node:crypto';
import { certificatePem, createCertificate, parseCertificate, type Certificate } from '../../api/pki/certificate.ts';
import * as der from '../../api/pki/der.ts';
import { EXTENSION } from '../../api/pki/extensions.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';
import { isObject, pick } from './json-path.ts';
import type { IssueRequest, Step } from './scenario.ts';

const DAY_MS = 86_400_000;

export interface KeyedCertificate {
  readonly cert: string;
  readonly key: string;
}

export interface SigningAuthority {
  readonly certificate: Certificate;
  readonly privateKey: KeyObject;
  readonly pem: string;
}

/** Creates a CA that is valid for a week. */
export async function createAuthority(commonName: string): Promise<SigningAuthority> {
  const keys = await generateKey('ecdsa');
  const now = Date.now();
  const raw = createCertificate(
    {
      subject: { commonName },
      publicKey: keys.publicKey,
      notBeforeMs: now - DAY_MS,
      notAfterMs: now + 7 * DAY_MS,
      keyUsages: ['cert sign'],
      basicConstraints: { isCa: true },
    },
    { privateKey: keys.privateKey },
  );
  return { certificate: parseCertificate(raw), privateKey: keys.privateKey, pem: certificatePem(raw) };
}

/** Issues a certificate of the CA for the subject of the request and these addresses. */
export async function issueCertificate(
  authority: SigningAuthority,
  request: IssueRequest,
  addresses: readonly string[] = [],
): Promise<KeyedCertificate> {
  const keys = await generateKey('ecdsa');
  const now = Date.now();
  const raw = createCertificate(
    {
      subject: subjectOf(request),
      publicKey: keys.publicKey,
      notBeforeMs: now - 60_000,
      notAfterMs: now + (request.days ?? 1) * DAY_MS,
      keyUsages: ['digital signature', 'key encipherment'],
      extendedKeyUsages: [USAGES[request.usage ?? 'clientAuth'] ?? 'client auth'],
      ...(addresses.length === 0 ? {} : { names: { ip: addresses, dns: ['localhost'] } }),
    },
    { certificate: authority.certificate, privateKey: authority.privateKey },
  );
  return { cert: certificatePem(raw), key: privateKeyPem(keys.privateKey) };
}

/**
 * Encodes the subject. Each organization is in a separate set, as in openssl. In one set, the encoding would determine their
 * order.
 */
function subjectOf({ cn, o = [] }: IssueRequest): Buffer {
  const part = (oid: string, value: string): Buffer => der.setOf(der.sequence(der.oid(oid), der.utf8String(value)));
  return der.sequence(...o.map((name) => part('2.5.4.10', name)), ...(cn === undefined ? [] : [part('2.5.4.3', cn)]));
}

const USAGES: Readonly<Record<string, string>> = { clientAuth: 'client auth', serverAuth: 'server auth' };

/** Returns the parts of a certificate or token that a step compares, or `null` if there is none. */
export function decode(wanted: NonNullable<Step['decode']>, body: unknown): unknown {
  const value = pick(body, wanted.x509 ?? wanted.jwt ?? '');
  if (typeof value !== 'string' || value === '') return null;
  return wanted.jwt === undefined ? decodeCertificate(value) : decodeToken(value);
}

function decodeToken(token: string): unknown {
  const [head = {}, claims = {}] = token
    .split('.')
    .slice(0, 2)
    .map((part) => JSON.parse(Buffer.from(part, 'base64url').toString('utf8')) as Record<string, unknown>);
  const issued = Number(claims['iat']);
  const since = (name: string): number => Number(claims[name]) - issued;
  if ('exp' in claims) claims['exp'] = `iat+${since('exp')}`;
  if ('nbf' in claims) claims['nbf'] = since('nbf') === 0 ? 'iat' : `iat+${since('nbf')}`;
  if ('iat' in claims) claims['iat'] = '<time>';
  const own = claims['kubernetes.io'];
  if (isObject(own) && own['warnafter'] !== undefined) own['warnafter'] = '<time>';
  return { alg: head['alg'], hasKeyId: typeof head['kid'] === 'string', claims };
}

function decodeCertificate(value: string): unknown {
  const pem = value.includes('-----BEGIN') ? value : Buffer.from(value, 'base64').toString('utf8');
  const parsed = new X509Certificate(pem);
  const subject = Object.entries(parsed.toLegacyObject().subject).map(([name, item]: [string, unknown]) => [
    name,
    Array.isArray(item) ? [...(item as string[])].sort() : item,
  ]);
  const spki = parsed.publicKey.export({ type: 'spki', format: 'der' });
  return {
    blocks: pem.split('-----BEGIN CERTIFICATE-----').length - 1,
    subject: Object.fromEntries(subject) as unknown,
    extensions: extensionTexts(parseCertificate(parsed.raw)),
    publicKey: createHash('sha256').update(spki).digest('hex').slice(0, 16),
    minutes: Math.round((Date.parse(parsed.validTo) - Date.parse(parsed.validFrom)) / 60_000),
  };
}

const KEY_USAGE_TEXTS: Readonly<Record<string, string>> = {
  'digital signature': 'Digital Signature',
  'content commitment': 'Non Repudiation',
  'key encipherment': 'Key Encipherment',
  'data encipherment': 'Data Encipherment',
  'key agreement': 'Key Agreement',
  'cert sign': 'Certificate Sign',
  'crl sign': 'CRL Sign',
};
const EXTENDED_TEXTS: Readonly<Record<string, string>> = {
  '1.3.6.1.5.5.7.3.1': 'TLS Web Server Authentication',
  '1.3.6.1.5.5.7.3.2': 'TLS Web Client Authentication',
};

/** Formats extensions as `openssl` does, because the recordings contain its text. */
function extensionTexts(certificate: Certificate): Record<string, string> {
  const texts: Record<string, string> = {};
  const add = (oid: string, title: string, text: string | undefined): void => {
    const extension = certificate.extensions.find((one) => one.oid === oid);
    if (extension !== undefined) texts[extension.critical ? `${title} critical` : title] = text ?? '';
  };
  const { basicConstraints, keyUsages, extendedKeyUsages, names } = certificate;
  add(EXTENSION.basicConstraints, 'Basic Constraints', `CA:${basicConstraints?.isCa === true ? 'TRUE' : 'FALSE'}`);
  add(EXTENSION.keyUsage, 'Key Usage', keyUsages?.map((usage) => KEY_USAGE_TEXTS[usage] ?? usage).join(', '));
  add(
    EXTENSION.extendedKeyUsage,
    'Extended Key Usage',
    extendedKeyUsages?.map((oid) => EXTENDED_TEXTS[oid] ?? oid).join(', '),
  );
  const alternatives = [
    ...names.dns.map((name) => `DNS:${name}`),
    ...names.email.map((name) => `email:${name}`),
    ...names.ip.map((address) => `IP Address:${addressText(address)}`),
    ...names.uri.map((uri) => `URI:${uri}`),
  ];
  add(EXTENSION.subjectAltName, 'Subject Alternative Name', alternatives.join(', '));
  return texts;
}

/** Formats IPv6 addresses with full groups and upper case. */
function addressText(address: string): string {
  if (!address.includes(':')) return address;
  const [before = '', after] = address.split('::');
  const head = before === '' ? [] : before.split(':');
  const tail = after === undefined || after === '' ? [] : after.split(':');
  const missing = after === undefined ? 0 : 8 - head.length - tail.length;
  return [...head, ...Array.from({ length: missing }, () => '0'), ...tail]
    .map((group) => group.toUpperCase())
    .join(':');
}
