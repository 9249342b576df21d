/** Tests which requests for certificates of pods prove that their author holds the key. */
import assert from 'node:assert/strict';
import { constants, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { test } from 'node:test';
import { createCsr } from '../../../../../../api/pki/certificate-request.ts';
import { readPem } from '../../../../../../api/pki/pem.ts';
import { certificateKinds } from '../../../../../../controlplane/registry/kinds/certificates/certificates.ts';
import { rulesOf } from '../strategy-fixture.ts';

const requests = rulesOf(certificateKinds, 'certificates.k8s.io', 'podcertificaterequests');
const POD_UID = '2e5c0a55-6a0c-4d1f-8a3c-0b6c9d7f1e11';

interface Pair {
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
}

const PAIRS: Readonly<Record<string, Pair>> = {
  rsa: generateKeyPairSync('rsa', { modulusLength: 3072 }),
  ec: generateKeyPairSync('ec', { namedCurve: 'secp384r1' }),
  ed25519: generateKeyPairSync('ed25519'),
};

const errorsOf = (key: object): readonly string[] =>
  requests.create({
    spec: {
      ...{ signerName: 'example.com/s', podName: 'p', podUID: POD_UID, serviceAccountName: 's' },
      ...{ serviceAccountUID: 'u', nodeName: 'n', nodeUID: 'v', maxExpirationSeconds: 3600 },
      ...key,
    },
  }).errors;

const stubOf = (pair: Pair): Buffer => readPem(createCsr({ subject: {} }, pair))[0]?.der ?? Buffer.alloc(0);
const spkiOf = (key: KeyObject): string => key.export({ type: 'spki', format: 'der' }).toString('base64');

function proofOf(pair: Pair, text: string): string {
  const bytes = Buffer.from(text);
  const padding = constants.RSA_PKCS1_PSS_PADDING;
  const { asymmetricKeyType: type } = pair.privateKey;
  const key = type === 'rsa' ? { key: pair.privateKey, padding } : pair.privateKey;
  return sign(type === 'ed25519' ? null : 'sha256', bytes, key).toString('base64');
}

for (const [type, pair] of Object.entries(PAIRS)) {
  test(`a request that the ${type} key has signed is accepted, and one that it has not is refused`, () => {
    const stub = stubOf(pair);
    assert.deepEqual(errorsOf({ stubPKCS10Request: stub.toString('base64') }), []);
    stub[stub.length - 1] = (stub.at(-1) ?? 0) ^ 1;
    assert.deepEqual(errorsOf({ stubPKCS10Request: stub.toString('base64') }), [
      'spec.stubPKCS10Request: Invalid value: invalid signature',
    ]);
  });

  test(`a signature of the UID of the pod proves that its author holds the ${type} key, that of another text does not`, () => {
    const pkixPublicKey = spkiOf(pair.publicKey);
    assert.deepEqual(errorsOf({ pkixPublicKey, proofOfPossession: proofOf(pair, POD_UID) }), []);
    assert.deepEqual(errorsOf({ pkixPublicKey, proofOfPossession: proofOf(pair, 'another') }), [
      'spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature',
    ]);
  });
}

test('keys that are absent, ambiguous, weak, slow or no keys are refused', () => {
  const { rsa, ec } = PAIRS;
  assert.ok(rsa && ec);
  const one =
    'spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set';
  const stubPKCS10Request = stubOf(ec).toString('base64');
  const proofOfPossession = proofOf(rsa, POD_UID);
  assert.deepEqual(errorsOf({}), [one]);
  assert.deepEqual(errorsOf({ pkixPublicKey: spkiOf(rsa.publicKey) }), [one]);
  assert.deepEqual(errorsOf({ stubPKCS10Request, proofOfPossession }), [one]);
  const short = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const { n = '' } = rsa.publicKey.export({ format: 'jwk' });
  const slow = createPublicKey({ key: { kty: 'RSA', n, e: n }, format: 'jwk' });
  for (const [key, bits] of [
    [short.publicKey, 2048],
    [slow, 3072],
  ] as const)
    assert.deepEqual(errorsOf({ pkixPublicKey: spkiOf(key), proofOfPossession }), [
      `spec.pkixPublicKey: Invalid value: "${bits}-bit modulus": RSA keys must have modulus size 3072 or 4096`,
    ]);
  assert.deepEqual(errorsOf({ pkixPublicKey: 'AAAA', proofOfPossession }), [
    'spec.pkixPublicKey: Invalid value: "AAAA": must be a valid PKIX-serialized public key',
  ]);
  assert.deepEqual(errorsOf({ stubPKCS10Request: 'AAAA' }), [
    'spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR',
  ]);
  const long = Buffer.alloc(10_241).toString('base64');
  assert.match(errorsOf({ stubPKCS10Request: long })[0] ?? '', /^spec\.stubPKCS10Request: Too long/);
});
