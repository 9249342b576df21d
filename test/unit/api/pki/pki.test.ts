import assert from 'node:assert/strict';
import { createPublicKey, generateKeyPairSync, type KeyObject, X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { test } from 'node:test';
import { createCsr, parseCsr } from '../../../../api/pki/certificate-request.ts';
import {
  certificatePem,
  createCertificate,
  parseCertificate,
  type CertificateTemplate,
} from '../../../../api/pki/certificate.ts';
import { verifyChain } from '../../../../api/pki/chain.ts';
import { DerError, readElement, readText, utf8String } from '../../../../api/pki/der.ts';
import { ipBytes, ipText } from '../../../../api/pki/names.ts';
import { generateKey, type KeyPair, verifiesInTime, verifySigned } from '../../../../api/pki/signing.ts';

const reasonOf = (result: ReturnType<typeof verifyChain>): string => (result.valid ? '' : result.reason);
const NOW = Date.parse('2026-06-01T00:00:00Z');
const DAY = 86_400_000;

interface Signer {
  readonly privateKey: KeyPair['privateKey'];
  readonly certificate: ReturnType<typeof parseCertificate>;
}

async function authority(name: string, more: Partial<CertificateTemplate> = {}, signer?: Signer): Promise<Signer> {
  const keys = await generateKey('ecdsa');
  const raw = createCertificate(
    {
      subject: { commonName: name },
      publicKey: keys.publicKey,
      notBeforeMs: NOW - DAY,
      notAfterMs: NOW + 100 * DAY,
      keyUsages: ['cert sign'],
      basicConstraints: { isCa: true },
      ...more,
    },
    signer === undefined
      ? { privateKey: keys.privateKey }
      : { privateKey: signer.privateKey, certificate: signer.certificate },
  );
  return { privateKey: keys.privateKey, certificate: parseCertificate(raw) };
}

function leaf(keys: KeyPair, issuer: Signer, more: Partial<CertificateTemplate> = {}) {
  return parseCertificate(
    createCertificate(
      {
        subject: { commonName: 'jane', organizations: ['devs', 'ops'] },
        publicKey: keys.publicKey,
        notBeforeMs: NOW - DAY,
        notAfterMs: NOW + DAY,
        extendedKeyUsages: ['client auth'],
        ...more,
      },
      issuer,
    ),
  );
}

for (const type of ['ecdsa', 'rsa'] as const) {
  test(`a ${type} certificate reads back as it was written, and OpenSSL agrees`, async () => {
    const ca = await authority('ca');
    const keys = await generateKey(type);
    const names = { dns: ['a.example'], ip: ['10.0.0.1', 'fd00::1'], email: ['x@example.com'], uri: ['spiffe://a/b'] };
    const made = leaf(keys, ca, { names, keyUsages: ['digital signature', 'key encipherment'] });
    assert.equal(made.subject.commonName, 'jane');
    assert.deepEqual([...made.subject.organizations].sort(), ['devs', 'ops']);
    assert.deepEqual(made.names, names);
    assert.deepEqual(made.keyUsages, ['digital signature', 'key encipherment']);
    const openssl = new X509Certificate(certificatePem(made.raw));
    assert.ok(openssl.verify(ca.certificate.publicKey));
    assert.equal(openssl.validToDate.getTime(), made.notAfterMs);
  });

  test(`a ${type} request proves its key, and a changed one does not`, async () => {
    const keys = await generateKey(type);
    const pem = createCsr(
      { subject: { commonName: 'system:node:n', organizations: ['system:nodes'] }, names: { dns: ['n'] } },
      keys,
    );
    const request = parseCsr(pem);
    assert.ok(request.signatureValid);
    assert.deepEqual(request.names.dns, ['n']);
    const der = Buffer.from(pem.replace(/-----[^-]+-----|\s/g, ''), 'base64');
    const at = der.indexOf('system:node:n');
    der.write('X', at);
    const forged = `-----BEGIN CERTIFICATE REQUEST-----\n${der.toString('base64')}\n-----END CERTIFICATE REQUEST-----\n`;
    assert.equal(parseCsr(forged).signatureValid, false);
  });
}

test('a chain is valid only with its intermediate', async () => {
  const root = await authority('root');
  const middle = await authority('middle', {}, root);
  const made = leaf(await generateKey('ecdsa'), middle);
  const options = { roots: [root.certificate], nowMs: NOW, usage: 'client auth' };
  assert.ok(verifyChain(made, { ...options, intermediates: [middle.certificate] }).valid);
  assert.equal(verifyChain(made, { ...options, intermediates: [] }).valid, false);
});

test('keys that no root vouches for verify nothing, whatever certificates a client shows', async () => {
  const root = await authority('root');
  const middle = await authority('middle', {}, root);
  const own = await generateKey('rsa');
  const times = { notBeforeMs: NOW - DAY, notAfterMs: NOW + DAY };
  const claimed = Array.from({ length: 8 }, () =>
    parseCertificate(
      createCertificate(
        { subject: { commonName: 'root' }, publicKey: own.publicKey, ...times, basicConstraints: { isCa: true } },
        { privateKey: own.privateKey },
      ),
    ),
  );
  const used: KeyObject[] = [];
  const watched = (certificate: ReturnType<typeof parseCertificate>) => ({
    ...certificate,
    get publicKey() {
      used.push(certificate.publicKey);
      return certificate.publicKey;
    },
  });
  const options = { roots: [root.certificate], nowMs: NOW, usage: 'client auth' };
  const [issuer] = claimed;
  assert.ok(issuer);
  const forged = leaf(await generateKey('ecdsa'), { privateKey: own.privateKey, certificate: issuer });
  const intermediates = [...claimed.map(watched), middle.certificate];
  assert.match(reasonOf(verifyChain(forged, { ...options, intermediates })), /unknown authority/);
  assert.deepEqual(used, []);
  assert.ok(verifyChain(leaf(await generateKey('ecdsa'), middle), { ...options, intermediates }).valid);
});

test('a certificate of a key with an exponent of thousands of bits is not verified', () => {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048, publicExponent: 0x1_0001 });
  const { n = '' } = publicKey.export({ format: 'jwk' });
  const slow = createPublicKey({ key: { kty: 'RSA', n, e: n }, format: 'jwk' });
  const times = { notBeforeMs: NOW - DAY, notAfterMs: NOW + DAY };
  const { parts } = parseCertificate(
    createCertificate({ subject: { commonName: 'c' }, publicKey: slow, ...times }, { privateKey }),
  );
  assert.equal(verifySigned(parts, publicKey), true);
  assert.equal(verifiesInTime(publicKey), true);
  assert.equal(verifySigned(parts, slow), false);
  assert.equal(verifiesInTime(slow), false);
});

test('a certificate whose algorithm of the signature is malformed is refused, and is no failure of the server', async () => {
  const root = await authority('root');
  const made = leaf(await generateKey('ecdsa'), root);
  const [body, , signature] = made.parts;
  assert.ok(body && signature);
  const algorithm = readElement(Buffer.from('300b0609ffffffffffffffff7f', 'hex'));
  const options = { roots: [root.certificate], intermediates: [], nowMs: NOW, usage: 'client auth' };
  const result = verifyChain({ ...made, parts: [body, algorithm, signature] }, options);
  assert.match(reasonOf(result), /unknown authority/);
});

test('invalid certificates are rejected', async () => {
  const root = await authority('root');
  const other = await authority('root');
  const notCa = await authority('no', { basicConstraints: { isCa: false } }, root);
  const short = await authority('short', { basicConstraints: { isCa: true, maxPathLength: 0 } }, root);
  const below = await authority('below', {}, short);
  const keys = await generateKey('ecdsa');
  const check = (made: ReturnType<typeof leaf>, intermediates = [] as ReturnType<typeof leaf>[]) =>
    verifyChain(made, { roots: [root.certificate], intermediates, nowMs: NOW, usage: 'client auth' });
  const refusals: [string, ReturnType<typeof check>, RegExp][] = [
    ['expired', check(leaf(keys, root, { notAfterMs: NOW - 1000 })), /expired or is not yet valid/],
    ['not yet valid', check(leaf(keys, root, { notBeforeMs: NOW + 1000 })), /expired or is not yet valid/],
    ['of another authority with the same name', check(leaf(keys, other)), /unknown authority/],
    ['for servers', check(leaf(keys, root, { extendedKeyUsages: ['server auth'] })), /incompatible key usage/],
    ['signed by a leaf', check(leaf(keys, notCa), [notCa.certificate]), /cannot sign/],
    [
      'below the path length',
      check(leaf(keys, below), [below.certificate, short.certificate]),
      /too many intermediates/,
    ],
  ];
  for (const [name, result, reason] of refusals) {
    assert.equal(result.valid, false, name);
    assert.match(result.valid ? '' : result.reason, reason, name);
  }
});

test('addresses keep their value', () => {
  for (const address of ['10.0.0.1', '::1', 'fd00::2', '2001:db8::8a2e:370:7334'])
    assert.equal(ipText(ipBytes(address)), address);
  assert.equal(ipText(ipBytes('::ffff:10.0.0.1')), '::ffff:a00:1');
});

test('the bytes of an IP address exist for what Node.js takes for one', () => {
  for (const address of [
    '::',
    '1::',
    '1:2:3:4:5:6:7::',
    '::1.2.3.4',
    '1:2:3:4:5:6:1.2.3.4',
    'FE80::A%eth0.1',
    '255.0.0.1',
  ])
    assert.equal(ipBytes(address).length, isIP(address) === 4 ? 4 : 16, address);
  for (const text of [
    '',
    ':',
    ':::',
    '1:2:3:4:5:6:7',
    '1::2::3',
    '1:2:3:4:5:6:7:8::',
    '::g',
    '::12345',
    '::01.2.3.4',
    '1.2.3',
  ])
    assert.throws(() => ipBytes(text), /is not an IP address/, text);
});

test('a UTF8String with invalid bytes is an encoding error', () => {
  assert.throws(() => readText({ ...readElement(utf8String('ab')), content: Buffer.from([0xff]) }), DerError);
});
