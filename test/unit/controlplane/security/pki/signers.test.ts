/** Tests the rules of the built-in signers: what they reject, and what a certificate contains. */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { createCertificate, parseCertificate, parseCertificates } from '../../../../../api/pki/certificate.ts';
import { createCsr, parseCsr, type CertificateRequestTemplate } from '../../../../../api/pki/certificate-request.ts';
import * as der from '../../../../../api/pki/der.ts';
import { generateKey, type KeyPair } from '../../../../../api/pki/signing.ts';
import { readPem } from '../../../../../api/pki/pem.ts';
import type { Authority } from '../../../../../controlplane/security/pki/authority.ts';
import { signRequest } from '../../../../../controlplane/security/pki/signers.ts';

const NOW = Date.parse('2026-06-01T00:00:00Z');
const YEAR = 365 * 86_400_000;
const CLIENT = 'kubernetes.io/kube-apiserver-client';
const NODE_CLIENT = 'kubernetes.io/kube-apiserver-client-kubelet';
const SERVING = 'kubernetes.io/kubelet-serving';
const NODE = { commonName: 'system:node:a', organizations: ['system:nodes'] };
const JANE = { commonName: 'jane', organizations: ['devs'] };
const CLIENT_USAGES = ['client auth', 'digital signature'];
const SERVER_USAGES = ['server auth', 'digital signature', 'key encipherment'];

let keys: KeyPair;
let authority: Authority;

before(async () => {
  keys = await generateKey('ecdsa');
  const ca = await generateKey('ecdsa');
  const raw = createCertificate(
    {
      subject: { commonName: 'ca' },
      publicKey: ca.publicKey,
      notBeforeMs: NOW - 1000,
      notAfterMs: NOW + 10 * YEAR,
      keyUsages: ['cert sign'],
      basicConstraints: { isCa: true },
    },
    { privateKey: ca.privateKey },
  );
  authority = { privateKey: ca.privateKey, certificate: parseCertificate(raw) } as Authority;
});

function sign(
  signerName: string,
  template: CertificateRequestTemplate,
  usages: readonly string[],
  expirationSeconds?: number,
) {
  const request = parseCsr(createCsr(template, keys));
  return signRequest({ signerName, request, usages, expirationSeconds }, authority, NOW, YEAR);
}

const attribute = (oid: string, text: string): Buffer => der.setOf(der.sequence(der.oid(oid), der.utf8String(text)));
const TWO_NAMES = der.sequence(
  attribute('2.5.4.10', 'system:nodes'),
  attribute('2.5.4.3', 'kube-apiserver-kubelet-client'),
  attribute('2.5.4.3', 'system:node:a'),
);
const dns = { names: { dns: ['a.example'] } };
const table: readonly (readonly [string, string, CertificateRequestTemplate, readonly string[], string | undefined])[] =
  [
    ['a client', CLIENT, { subject: JANE }, CLIENT_USAGES, undefined],
    [
      'a client without client auth',
      CLIENT,
      { subject: JANE },
      ['digital signature'],
      'missing required usage for client certificate: client auth',
    ],
    [
      'a client that wants to serve',
      CLIENT,
      { subject: JANE },
      ['client auth', 'server auth'],
      'invalid usage for client certificate: server auth',
    ],
    ['a node', NODE_CLIENT, { subject: NODE }, CLIENT_USAGES, undefined],
    ...[NODE_CLIENT, SERVING].map(
      (signer) =>
        [
          `a node with the name of another user before its own (${signer})`,
          signer,
          { subject: TWO_NAMES, ...(signer === SERVING ? dns : {}) },
          signer === SERVING ? SERVER_USAGES : CLIENT_USAGES,
          'subject has more than one common name',
        ] as const,
    ),
    [
      'a node of no group',
      NODE_CLIENT,
      { subject: { commonName: 'system:node:a' } },
      CLIENT_USAGES,
      'subject organization is not system:nodes',
    ],
    [
      'a node with a second group',
      NODE_CLIENT,
      { subject: { ...NODE, organizations: ['system:nodes', 'system:masters'] } },
      CLIENT_USAGES,
      'subject organization is not system:nodes',
    ],
    [
      'a node that is none',
      NODE_CLIENT,
      { subject: { ...NODE, commonName: 'admin' } },
      CLIENT_USAGES,
      'subject common name does not begin with system:node:',
    ],
    [
      'a node with a name to serve by',
      NODE_CLIENT,
      { subject: NODE, ...dns },
      CLIENT_USAGES,
      'DNS subjectAltNames are not allowed',
    ],
    ['a node’s server', SERVING, { subject: NODE, ...dns }, SERVER_USAGES, undefined],
    ['a server without names', SERVING, { subject: NODE }, SERVER_USAGES, 'DNS or IP subjectAltName is required'],
    [
      'a server with a mail address',
      SERVING,
      { subject: NODE, names: { dns: ['a'], email: ['a@b.example'] } },
      SERVER_USAGES,
      'Email subjectAltNames are not allowed',
    ],
    [
      'a server with a URI',
      SERVING,
      { subject: NODE, names: { dns: ['a'], uri: ['spiffe://a/b'] } },
      SERVER_USAGES,
      'URI subjectAltNames are not allowed',
    ],
    [
      'a server that wants to be a client',
      SERVING,
      { subject: NODE, ...dns },
      [...SERVER_USAGES, 'client auth'],
      'usages did not match [digital signature key encipherment server auth]',
    ],
    [
      'a signer nobody knows',
      'example.com/other',
      { subject: JANE },
      CLIENT_USAGES,
      'unknown signer example.com/other',
    ],
  ];
for (const [name, signer, template, usages, refused] of table) {
  test(`${name}: ${refused ?? 'signed'}`, () => {
    const result = sign(signer, template, usages);
    assert.equal('refused' in result ? result.refused : undefined, refused);
  });
}

function certificateOf(result: ReturnType<typeof sign>) {
  assert.ok('certificate' in result);
  return parseCertificate(readPem(result.certificate)[0]?.der ?? assert.fail());
}

test("no certificate is a CA, and names and usages follow the signer's rules", () => {
  const certificate = certificateOf(sign(CLIENT, { subject: JANE, ...dns }, CLIENT_USAGES));
  assert.notEqual(certificate.basicConstraints?.isCa, true);
  assert.deepEqual(certificate.names.dns, ['a.example']);
  assert.deepEqual(certificateOf(sign(NODE_CLIENT, { subject: NODE }, CLIENT_USAGES)).names.dns, []);
});

test("a certificate has the requested lifetime, limited by the cluster's maximum", () => {
  const hour = certificateOf(sign(CLIENT, { subject: JANE }, CLIENT_USAGES, 3600));
  assert.equal(hour.notAfterMs, NOW + 3_600_000);
  const long = certificateOf(sign(CLIENT, { subject: JANE }, CLIENT_USAGES, 20 * 365 * 86_400));
  assert.ok(long.notAfterMs <= NOW + YEAR);
});

test('a certificate that is signed before the clock of the host was set is valid afterwards', () => {
  const request = parseCsr(createCsr({ subject: NODE }, keys));
  const input = { signerName: NODE_CLIENT, request, usages: CLIENT_USAGES, expirationSeconds: undefined };
  const signed = signRequest(input, authority, Date.UTC(2023, 1, 1), YEAR);
  const [certificate] = parseCertificates('certificate' in signed ? signed.certificate : '');
  assert.ok(certificate !== undefined && certificate.notBeforeMs < Date.UTC(2023, 1, 1));
  assert.ok(certificate.notAfterMs > Date.UTC(2026, 11, 1));
});
