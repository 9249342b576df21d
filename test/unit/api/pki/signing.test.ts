import assert from 'node:assert/strict';
import { generateKeyPairSync, sign } from 'node:crypto';
import { test } from 'node:test';
import * as der from '../../../../api/pki/der.ts';
import { verifySigned } from '../../../../api/pki/signing.ts';

const RSA_SHA1 = '1.2.840.113549.1.1.5';

test('a SHA-1 signature proves the key of a request and never verifies a certificate', () => {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const body = der.sequence(der.integer(0));
  const identifier = der.sequence(der.oid(RSA_SHA1), der.nullValue());
  const whole = der.sequence(body, identifier, der.bitString(sign('sha1', body, privateKey)));
  const parts = der.readAll(der.readSingle(whole, der.TAG.sequence).content);
  assert.equal(verifySigned(parts, publicKey, 'request'), true);
  assert.equal(verifySigned(parts, publicKey), false);
  const other = generateKeyPairSync('rsa', { modulusLength: 2048 });
  assert.equal(verifySigned(parts, other.publicKey, 'request'), false);
});
