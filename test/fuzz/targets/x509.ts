/** Attacks the parsers of certificates and certificate requests in DER and PEM, and of certificate chains. */
import { createCsr, parseCsr, parseCsrDer } from '../../../api/pki/certificate-request.ts';
import {
  certificatePem,
  createCertificate,
  parseCertificate,
  parseCertificates,
} from '../../../api/pki/certificate.ts';
import { verifyChain } from '../../../api/pki/chain.ts';
import { DerError } from '../../../api/pki/der.ts';
import { generateKey } from '../../../api/pki/signing.ts';
import { readPem } from '../../../api/pki/pem.ts';
import { errorClass, law, type Target } from '../target.ts';

const NOW_MS = 1_700_000_000_000;

/** Returns the result, or the class of a declared error. node:crypto has its own errors for keys that it cannot use. */
function tried(run: () => string): string {
  try {
    return run();
  } catch (error) {
    if (error instanceof DerError) return errorClass(error);
    const { code } = error as NodeJS.ErrnoException;
    law(typeof code === 'string' && /^ERR_(?:OSSL|CRYPTO)/.test(code), `undeclared: ${String((error as Error).stack)}`);
    return code;
  }
}

/** Resolves to the target for the parsers of certificates. */
export async function x509(): Promise<Target> {
  const keys = await generateKey('ecdsa');
  const template = {
    subject: { commonName: 'a', organizations: ['system:masters', 'é'] },
    notBeforeMs: NOW_MS - 1000,
    notAfterMs: NOW_MS + 1e10,
    keyUsages: ['digitalSignature', 'keyCertSign'] as const,
    extendedKeyUsages: ['clientAuth'],
    basicConstraints: { isCa: true, pathLength: 1 },
    names: { dns: ['a.b'], ip: ['10.0.0.1', '::1'], email: ['a@b'], uri: ['spiffe://x/y'] },
    publicKey: keys.publicKey,
  };
  const raw = createCertificate(template as never, { privateKey: keys.privateKey } as never);
  const ca = parseCertificate(raw);
  const csr = createCsr({ subject: template.subject, names: template.names } as never, keys);
  return {
    seeds: [raw, readPem(csr)[0]?.der ?? Buffer.alloc(0), certificatePem(raw), csr],
    words: [
      '\x30\x82',
      '\x30\x80',
      '\x06\x03\x55\x1d\x11',
      '\x02\x01',
      '\x31',
      '\x84\xff\xff\xff\xff',
      '\x1f\xff',
      '\x17\x0d',
      '-----BEGIN CERTIFICATE-----\n',
      '-----END CERTIFICATE-----\n',
      '\xa0',
      '\xa3',
    ],
    generate: (random) => {
      const bytes = Buffer.from(random.chance(2) ? raw : (readPem(csr)[0]?.der ?? raw));
      for (let changes = 1 + random.below(4); changes > 0; changes -= 1)
        bytes[random.below(bytes.length)] = random.below(256);
      return bytes;
    },
    execute(input) {
      const chained = tried(() => {
        const leaf = parseCertificate(input);
        return `chain ${verifyChain(leaf, { roots: [ca], intermediates: [leaf], nowMs: NOW_MS, usage: 'clientAuth' }).valid}`;
      });
      const request = tried(() => `request ${parseCsrDer(input).signatureValid}`);
      const text = input.toString('latin1');
      return [
        chained,
        request,
        tried(() => `${parseCertificates(text).length}`),
        tried(() => `${parseCsr(text).signatureValid}`),
      ].join('; ');
    },
  };
}
