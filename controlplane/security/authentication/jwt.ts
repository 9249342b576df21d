/**
 * Parses compact JSON web tokens, and verifies a signature with a key and the one algorithm of that key. The token's `alg`
 * never selects the algorithm; it must be equal to it.
 */
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { stringifyJson } from '../../../api/codec/json.ts';
import { type KeyObject, constants, sign, verify as verifyWith } from 'node:crypto';

/** A parsed token whose signature has not been verified. */
export interface Jwt {
  readonly header: Readonly<Record<string, unknown>>;
  readonly claims: Readonly<Record<string, unknown>>;
  /** The signed part of the token. */
  readonly input: Buffer;
  readonly signature: Buffer;
}

const PART = /^[A-Za-z0-9_-]+$/;
const MAX_TOKEN_BYTES = 64 * 1024;
const HASHES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    RS256: 'sha256',
    RS384: 'sha384',
    RS512: 'sha512',
    PS256: 'sha256',
    PS384: 'sha384',
    PS512: 'sha512',
    ES256: 'sha256',
    ES384: 'sha384',
    ES512: 'sha512',
  }),
);

/**
 * Returns `undefined` if the text is not a token, or is longer than 64 KiB. A token has three parts in base64url: two JSON
 * objects and the signature, whose encoding must be the only one that it has.
 */
export function parseJwt(token: string): Jwt | undefined {
  if (token.length > MAX_TOKEN_BYTES) return undefined;
  const parts = token.split('.');
  const [head = '', body = '', signature = ''] = parts;
  if (parts.length !== 3 || !parts.every((part) => PART.test(part))) return undefined;
  // The unused bits of the last character must be zero. The other parts are signed as text, so that they have one encoding.
  if (Buffer.from(signature, 'base64url').toString('base64url') !== signature) return undefined;
  const header = parseObject(head);
  const claims = parseObject(body);
  if (header === undefined || claims === undefined) return undefined;
  return {
    header,
    claims,
    input: Buffer.from(`${head}.${body}`, 'ascii'),
    signature: Buffer.from(signature, 'base64url'),
  };
}

function parseObject(part: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(part, 'base64url').toString('utf8'));
    return isJsonObject(value) ? value : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function keyOptions(key: KeyObject, algorithm: string) {
  if (algorithm.startsWith('ES')) return { key, dsaEncoding: 'ieee-p1363' as const };
  if (algorithm.startsWith('PS')) {
    return { key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: constants.RSA_PSS_SALTLEN_DIGEST };
  }
  return { key, padding: constants.RSA_PKCS1_PADDING };
}

/** Whether the key signed the token with this algorithm. False for a `crit` header and for a key of another type. */
export function verifyJwt(
  jwt: Jwt,
  key: KeyObject,
  algorithm: string,
  verify: typeof verifyWith = verifyWith,
): boolean {
  const hash = HASHES.get(algorithm);
  if (jwt.header['alg'] !== algorithm || hash === undefined) return false;
  if (jwt.header['crit'] !== undefined) return false;
  const wantedType = algorithm.startsWith('ES') ? 'ec' : 'rsa';
  if (key.asymmetricKeyType !== wantedType) return false;
  return verify(hash, jwt.input, keyOptions(key, algorithm), jwt.signature);
}

/** Signs with the algorithm of the header and returns the compact form. */
export function signJwt(
  claims: object,
  key: KeyObject,
  header: { readonly alg: string; readonly kid?: string },
): string {
  const part = (value: object): string => Buffer.from(stringifyJson(value)).toString('base64url');
  const input = `${part(header)}.${part(claims)}`;
  const signature = sign(HASHES.get(header.alg) ?? 'sha256', Buffer.from(input, 'ascii'), keyOptions(key, header.alg));
  return `${input}.${signature.toString('base64url')}`;
}
