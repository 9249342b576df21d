import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createCsr } from '../../../../../../api/pki/certificate-request.ts';
import { readPem, writePem } from '../../../../../../api/pki/pem.ts';
import { generateKey } from '../../../../../../api/pki/signing.ts';
import { certificateKinds } from '../../../../../../controlplane/registry/kinds/certificates/certificates.ts';
import { assertLinearTime } from '../../../../../fuzz/growth.ts';
import { rulesOf } from '../strategy-fixture.ts';

const requests = rulesOf(certificateKinds, 'certificates.k8s.io', 'certificatesigningrequests');

const FAULTS = { ecdsa: 'x509: ECDSA verification failure', rsa: 'crypto/rsa: verification error' };

for (const type of ['ecdsa', 'rsa'] as const) {
  test(`a request whose ${type} signature does not verify is refused in Go's words`, async () => {
    const pem = createCsr({ subject: { commonName: 'ann', organizations: [] } }, await generateKey(type));
    const errors = (text: string): readonly string[] => {
      const request = Buffer.from(text).toString('base64');
      return requests.create({ spec: { request, signerName: 'example.com/s', usages: ['client auth'] } }).errors;
    };
    assert.deepEqual(errors(pem), []);
    const der = Buffer.from(readPem(pem)[0]?.der ?? []);
    // The name in the subject is not the signed one.
    der.write('bob', der.indexOf('ann'));
    const [error = ''] = errors(writePem('CERTIFICATE REQUEST', der));
    assert.ok(error.startsWith('spec.request: Invalid value: ') && error.endsWith(`: ${FAULTS[type]}`), error);
  });
}

const numbered = <T>(size: number, make: (index: number) => T): T[] =>
  Array.from({ length: size }, (_item, index) => make(index));

test('a request with thousands of usages takes time that grows with their number', async () => {
  const spec = (size: number): object => ({ signerName: 'example.com/s', usages: numbered(size, (at) => `u${at}`) });
  await assertLinearTime((size) => requests.create({ spec: spec(size) }), { minBytes: 32_768, maxBytes: 32_768 });
});

test('a status with thousands of conditions takes time that grows with their number', async () => {
  const status = rulesOf(certificateKinds, 'certificates.k8s.io', 'certificatesigningrequests', 'status');
  const conditions = (size: number): object => ({
    conditions: numbered(size, (at) => ({ type: `c${at}`, status: 'True', reason: 'r' })),
  });
  const spec = { signerName: 'example.com/s', usages: ['client auth'] };
  const run = (size: number): unknown =>
    status.update({ spec, status: conditions(size) }, { spec, status: conditions(size) });
  await assertLinearTime(run, { minBytes: 16_384, maxBytes: 16_384 });
});
