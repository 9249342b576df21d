/**
 * Verifies that the author of a pod certificate request holds the private key of the requested certificate. The proof is a
 * PKCS#10 request without a name that the key has signed, or the older pair of a public key and a signature of the pod's UID.
 * Without a proof, a node could have the key of somebody else certified as that of a pod.
 */
import { constants, createPublicKey, type KeyObject, verify } from 'node:crypto';
import { type FieldError, invalid, OMITTED_VALUE, tooLong } from '../../../../api/meta/field-error.ts';
import { parseCsrDer } from '../../../../api/pki/certificate-request.ts';
import { verifiesInTime } from '../../../../api/pki/signing.ts';

const STUB = 'spec.stubPKCS10Request';
const KEY = 'spec.pkixPublicKey';
const PROOF = 'spec.proofOfPossession';
/** The maximum number of bytes of the request, of the key and of the signature. */
const MAX_BYTES = 10 * 1024;
const CURVES: ReadonlySet<string> = new Set(['prime256v1', 'secp384r1', 'secp521r1']);
const MODULUS_BITS: ReadonlySet<number> = new Set([3072, 4096]);

/** The fields of the spec that name the key; bytes are base64. */
interface ClaimedKey {
  readonly podUID?: string | undefined;
  readonly stubPKCS10Request?: string | undefined;
  readonly pkixPublicKey?: string | undefined;
  readonly proofOfPossession?: string | undefined;
}

/** Returns the errors of the key of a request and of its proof. */
export function possessionErrors(spec: ClaimedKey | undefined): FieldError[] {
  const bytesOf = (text: string | undefined): Buffer => Buffer.from(text ?? '', 'base64');
  const stub = bytesOf(spec?.stubPKCS10Request);
  const key = bytesOf(spec?.pkixPublicKey);
  const proof = bytesOf(spec?.proofOfPossession);
  if (stub.length > 0 && key.length === 0 && proof.length === 0) return stubErrors(stub);
  if (stub.length === 0 && key.length > 0 && proof.length > 0) return proofErrors(key, proof, spec?.podUID ?? '');
  const text = 'exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set';
  return [invalid('spec', OMITTED_VALUE, text)];
}

function stubErrors(raw: Buffer): FieldError[] {
  if (raw.length > MAX_BYTES) return [tooLong(STUB, MAX_BYTES)];
  let request: ReturnType<typeof parseCsrDer>;
  try {
    request = parseCsrDer(raw);
  } catch {
    return [invalid(STUB, OMITTED_VALUE, 'must be a valid PKCS#10 CSR')];
  }
  const errors = keyErrors(STUB, request.publicKey);
  if (errors.length > 0 || request.signatureValid) return errors;
  return [invalid(STUB, OMITTED_VALUE, 'invalid signature')];
}

function proofErrors(raw: Buffer, proof: Buffer, podUid: string): FieldError[] {
  if (raw.length > MAX_BYTES) return [tooLong(KEY, MAX_BYTES)];
  if (proof.length > MAX_BYTES) return [tooLong(PROOF, MAX_BYTES)];
  let key: KeyObject;
  try {
    key = createPublicKey({ key: raw, type: 'spki', format: 'der' });
  } catch {
    return [invalid(KEY, raw.toString('base64'), 'must be a valid PKIX-serialized public key')];
  }
  const errors = keyErrors(KEY, key);
  if (errors.length > 0) return errors;
  const pss = { key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: constants.RSA_PSS_SALTLEN_AUTO };
  const isRsa = key.asymmetricKeyType === 'rsa';
  const hash = key.asymmetricKeyType === 'ed25519' ? null : 'sha256';
  if (verify(hash, Buffer.from(podUid), isRsa ? pss : key, proof)) return [];
  return [invalid(PROOF, OMITTED_VALUE, 'could not verify proof-of-possession signature')];
}

function keyErrors(field: string, key: KeyObject): FieldError[] {
  const { namedCurve = '', modulusLength = 0 } = key.asymmetricKeyDetails ?? {};
  switch (key.asymmetricKeyType) {
    case 'ed25519':
      return [];
    case 'ec':
      if (CURVES.has(namedCurve)) return [];
      return [invalid(field, `curve ${namedCurve}`, 'elliptic public keys must use curve P256, P384, or P521')];
    case 'rsa':
      if (MODULUS_BITS.has(modulusLength) && verifiesInTime(key)) return [];
      return [invalid(field, `${modulusLength}-bit modulus`, 'RSA keys must have modulus size 3072 or 4096')];
    default: {
      const text = 'unknown public key type; supported types are Ed25519, ECDSA, and RSA';
      return [invalid(field, OMITTED_VALUE, text)];
    }
  }
}
