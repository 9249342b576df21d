/** Implements the signature algorithms of certificates and requests, with keys of node:crypto, and generates keys. */
import { constants, generateKeyPair, sign, verify, type KeyObject } from 'node:crypto';
import * as der from './der.ts';

const ECDSA: ReadonlyMap<string, { readonly oid: string; readonly hash: string }> = new Map(
  Object.entries({
    prime256v1: { oid: '1.2.840.10045.4.3.2', hash: 'sha256' },
    secp384r1: { oid: '1.2.840.10045.4.3.3', hash: 'sha384' },
    secp521r1: { oid: '1.2.840.10045.4.3.4', hash: 'sha512' },
  }),
);
const RSA_SHA256 = '1.2.840.113549.1.1.11';
const ED25519 = '1.3.101.112';

const VERIFY: ReadonlyMap<string, { readonly hash: string | null; readonly type: string }> = new Map(
  Object.entries({
    '1.2.840.10045.4.3.2': { hash: 'sha256', type: 'ec' },
    '1.2.840.10045.4.3.3': { hash: 'sha384', type: 'ec' },
    '1.2.840.10045.4.3.4': { hash: 'sha512', type: 'ec' },
    '1.2.840.113549.1.1.11': { hash: 'sha256', type: 'rsa' },
    '1.2.840.113549.1.1.12': { hash: 'sha384', type: 'rsa' },
    '1.2.840.113549.1.1.13': { hash: 'sha512', type: 'rsa' },
    [ED25519]: { hash: null, type: 'ed25519' },
  }),
);

/**
 * The signature algorithms that are accepted in requests. SHA-1 is too weak for certificates, but in a request it only proves
 * possession of the key, and Go accepts it there.
 */
const VERIFY_REQUEST: ReadonlyMap<string, { readonly hash: string | null; readonly type: string }> = new Map([
  ...VERIFY,
  ['1.2.840.113549.1.1.5', { hash: 'sha1', type: 'rsa' }],
  ['1.2.840.10045.4.1', { hash: 'sha1', type: 'ec' }],
]);

interface Algorithm {
  /** The DER of the AlgorithmIdentifier. */
  readonly identifier: Buffer;
  readonly hash: string | null;
}

/** Returns the signature algorithm for a key. Throws a `TypeError` for keys that certificates do not use. */
export function algorithmOf(key: KeyObject): Algorithm {
  switch (key.asymmetricKeyType) {
    case 'rsa':
      return { identifier: der.sequence(der.oid(RSA_SHA256), der.nullValue()), hash: 'sha256' };
    case 'ed25519':
      return { identifier: der.sequence(der.oid(ED25519)), hash: null };
    case 'ec': {
      const found = ECDSA.get(key.asymmetricKeyDetails?.namedCurve ?? '');
      if (found !== undefined) return { identifier: der.sequence(der.oid(found.oid)), hash: found.hash };
      throw new TypeError(`cannot sign with curve ${key.asymmetricKeyDetails?.namedCurve}`);
    }
    default:
      throw new TypeError(`cannot sign with a ${key.asymmetricKeyType} key`);
  }
}

/** Signs `toBeSigned` and returns `SEQUENCE { toBeSigned, algorithm, signature }`. */
export function signed(toBeSigned: Buffer, key: KeyObject): Buffer {
  const { identifier, hash } = algorithmOf(key);
  return der.sequence(toBeSigned, identifier, der.bitString(sign(hash, toBeSigned, key)));
}

/** The limit of Go. The time of a verification grows with the length of the exponent: a hostile key has thousands of bits. */
const MAX_EXPONENT = 2n ** 31n - 1n;

/** Whether the key verifies signatures in about the time that others take. False for DSA keys, whose time has no limit. */
export function verifiesInTime({ asymmetricKeyType, asymmetricKeyDetails = {} }: KeyObject): boolean {
  return asymmetricKeyType !== 'dsa' && (asymmetricKeyDetails.publicExponent ?? 0n) <= MAX_EXPONENT;
}

/**
 * Whether the key has signed the parts of a result of `signed`. Returns false for unknown algorithms, keys of another type, and
 * those that take long. Throws `DerError` for a malformed algorithm or signature.
 */
export function verifySigned(
  parts: readonly der.DerElement[],
  key: KeyObject,
  signedThing: 'certificate' | 'request' = 'certificate',
): boolean {
  const [body, algorithm, signature] = parts;
  if (body === undefined || algorithm === undefined || signature === undefined) return false;
  const [id] = der.readAll(der.expect(algorithm, der.TAG.sequence).content);
  const algorithms = signedThing === 'request' ? VERIFY_REQUEST : VERIFY;
  const scheme = id === undefined ? undefined : algorithms.get(der.readOid(id));
  if (scheme === undefined || scheme.type !== key.asymmetricKeyType || !verifiesInTime(key)) return false;
  const bits = der.expect(signature, der.TAG.bitString).content.subarray(1);
  const options = scheme.type === 'rsa' ? { key, padding: constants.RSA_PKCS1_PADDING } : key;
  return verify(scheme.hash, body.whole, options, bits);
}

/** A generated pair. */
export interface KeyPair {
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
}

/** Generates an ECDSA key (P-256) or an RSA key with 2048 bits, outside of the event loop. */
export function generateKey(type: 'ecdsa' | 'rsa'): Promise<KeyPair> {
  return new Promise((resolve, reject) => {
    const done = (error: Error | null, publicKey: KeyObject, privateKey: KeyObject): void => {
      if (error !== null) reject(error);
      else resolve({ privateKey, publicKey });
    };
    if (type === 'ecdsa') generateKeyPair('ec', { namedCurve: 'prime256v1' }, done);
    else generateKeyPair('rsa', { modulusLength: 2048 }, done);
  });
}

/** Exports the key in the formats of Kubernetes' tools: SEC 1 for EC, PKCS #1 for RSA, and PKCS #8 for other keys. */
export function privateKeyPem(key: KeyObject): string {
  if (key.asymmetricKeyType === 'ec') return key.export({ type: 'sec1', format: 'pem' }).toString();
  if (key.asymmetricKeyType === 'rsa') return key.export({ type: 'pkcs1', format: 'pem' }).toString();
  return key.export({ type: 'pkcs8', format: 'pem' }).toString();
}
