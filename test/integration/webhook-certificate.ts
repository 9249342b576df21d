/** Creates the certificate of a webhook at 127.0.0.1, which is its own CA. */
import { certificatePem, createCertificate } from '../../api/pki/certificate.ts';
import { generateKey, privateKeyPem } from '../../api/pki/signing.ts';

const DAY = 86_400_000;

/** Resolves to a certificate and its key in PEM, valid for a day. */
export async function webhookCertificate(): Promise<{ readonly cert: string; readonly key: string }> {
  const keys = await generateKey('ecdsa');
  const certificate = createCertificate(
    {
      subject: { commonName: 'webhook' },
      publicKey: keys.publicKey,
      notBeforeMs: Date.now() - DAY,
      notAfterMs: Date.now() + DAY,
      keyUsages: ['cert sign', 'digital signature'],
      extendedKeyUsages: ['server auth'],
      basicConstraints: { isCa: true },
      names: { ip: ['127.0.0.1'] },
    },
    { privateKey: keys.privateKey },
  );
  return { cert: certificatePem(certificate), key: privateKeyPem(keys.privateKey) };
}
