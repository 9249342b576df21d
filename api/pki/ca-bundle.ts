/**
 * Signs and verifies CA bundles: the certificates that a cluster trusts, signed with the key of one of its CAs (a compact JWS,
 * RFC 7515). A bundle is published where other clients can write, so it counts only if a CA that the reader already trusts
 * signed it.
 */
import { createPublicKey, type KeyObject, sign, verify } from 'node:crypto';
import { parseJson, stringifyJson } from '../codec/json.ts';
import { type Certificate, certificatePem, parseCertificates } from './certificate.ts';

/** The trusted CAs at one time. */
export interface CaBundle {
  /** PEM. The CA that currently issues certificates comes first. */
  readonly certificates: string;
  /** A bundle replaces only bundles that were issued earlier. */
  readonly issuedAtMs: number;
}

/** The key in the ConfigMap `cluster-info` of kube-public. */
export const CA_BUNDLE_KEY = 'orchlet-ca-bundle';

const TYPE = 'orchlet-ca-bundle';
const MAX_BYTES = 256 * 1024;
/** The maximum number of CAs of a bundle. */
const MAX_CERTIFICATES = 16;

interface SigningScheme {
  readonly name: string;
  readonly hash: string | null;
}

/** Throws for a key type that cannot sign bundles. */
function schemeOf(key: KeyObject): SigningScheme {
  if (key.asymmetricKeyType === 'rsa') return { name: 'RS256', hash: 'sha256' };
  if (key.asymmetricKeyType === 'ed25519') return { name: 'EdDSA', hash: null };
  switch (key.asymmetricKeyDetails?.namedCurve) {
    case 'prime256v1':
      return { name: 'ES256', hash: 'sha256' };
    case 'secp384r1':
      return { name: 'ES384', hash: 'sha384' };
    case 'secp521r1':
      return { name: 'ES512', hash: 'sha512' };
    default:
      throw new TypeError(`a ${key.asymmetricKeyType} key cannot sign a CA bundle`);
  }
}

/** Signs a bundle and returns the JWS. The algorithm follows from the key. Throws a `TypeError` for a key of another type. */
export function signCaBundle(bundle: CaBundle, privateKey: KeyObject): string {
  const { name, hash } = schemeOf(createPublicKey(privateKey));
  const encode = (value: object): string => Buffer.from(stringifyJson(value)).toString('base64url');
  const input = `${encode({ alg: name, typ: TYPE })}.${encode(bundle)}`;
  const signature = sign(hash, Buffer.from(input), { key: privateKey, dsaEncoding: 'ieee-p1363' });
  return `${input}.${signature.toString('base64url')}`;
}

/**
 * Verifies a signed bundle of CAs. Returns `undefined` unless a trusted CA (PEM) signed the bundle and it contains only CA
 * certificates. Never throws.
 */
export function verifyCaBundle(text: string, trusted: string): CaBundle | undefined {
  const [header, payload, signature, ...more] = text.trim().split('.');
  if (text.length > MAX_BYTES || signature === undefined || more.length > 0) return undefined;
  const input = Buffer.from(`${header}.${payload}`);
  const isSigned = casOf(trusted).some(({ publicKey }) => isSignedBy(publicKey, { header, input, signature }));
  return isSigned ? bundleOf(payload) : undefined;
}

interface SignedText {
  readonly header: string | undefined;
  readonly input: Buffer;
  readonly signature: string;
}

/** Verifies the signature. The key determines the algorithm, and the header must agree with it. */
function isSignedBy(key: KeyObject, { header, input, signature }: SignedText): boolean {
  try {
    const { name, hash } = schemeOf(key);
    const expected = Buffer.from(stringifyJson({ alg: name, typ: TYPE })).toString('base64url');
    const bytes = Buffer.from(signature, 'base64url');
    return header === expected && verify(hash, input, { key, dsaEncoding: 'ieee-p1363' }, bytes);
  } catch {
    // Keys of this type cannot sign bundles.
    return false;
  }
}

function bundleOf(payload: string | undefined): CaBundle | undefined {
  let value: unknown;
  try {
    ({ value } = parseJson(Buffer.from(payload ?? '', 'base64url')));
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null || !('certificates' in value) || !('issuedAtMs' in value))
    return undefined;
  const { certificates, issuedAtMs } = value;
  if (typeof certificates !== 'string' || typeof issuedAtMs !== 'number' || !Number.isSafeInteger(issuedAtMs))
    return undefined;
  const found = casOf(certificates);
  if (found.length === 0 || found.length > MAX_CERTIFICATES) return undefined;
  return { certificates: found.map(({ raw }) => certificatePem(raw)).join(''), issuedAtMs };
}

/** Returns an empty list if a certificate cannot be parsed or is not a CA certificate. */
function casOf(pem: string): readonly Certificate[] {
  try {
    const found = parseCertificates(pem);
    return found.every(({ basicConstraints }) => basicConstraints?.isCa === true) ? found : [];
  } catch {
    return [];
  }
}
