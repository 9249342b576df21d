/** Creates chains of certificates that no server trusts, as clients may show them. */
import { certificatePem, createCertificate, parseCertificate } from '../api/pki/certificate.ts';
import type { KeyPair } from '../api/pki/signing.ts';

/** Returns a client certificate with so many certificates above it (PEM), each of which has the key of the issuer. */
export function chainOf(length: number, client: KeyPair, issuing: KeyPair): string {
  const times = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 };
  let issuer: ReturnType<typeof parseCertificate> | undefined;
  const made: Buffer[] = [];
  for (let at = length; at >= 0; at--) {
    const { publicKey } = at === 0 ? client : issuing;
    const template = { subject: { commonName: `c${at}` }, publicKey, ...times, basicConstraints: { isCa: at > 0 } };
    const signer = issuer === undefined ? {} : { certificate: issuer };
    const raw = createCertificate(template, { privateKey: issuing.privateKey, ...signer });
    issuer = parseCertificate(raw);
    made.unshift(raw);
  }
  return made.map(certificatePem).join('');
}
