/**
 * Computes the hash by which others recognize the public key of a certificate, as `kubeadm join` and `orchlet join` write it.
 */
import { createHash, X509Certificate, type KeyObject } from 'node:crypto';

/** Returns `sha256:` and the hash of the key's SPKI in hexadecimal digits. */
export function publicKeyHash(key: KeyObject): string {
  return `sha256:${createHash('sha256')
    .update(key.export({ type: 'spki', format: 'der' }))
    .digest('hex')}`;
}

/** Returns the hash for the first certificate of a PEM text. */
export const certificateKeyHash = (pem: string | Buffer): string => publicKeyHash(new X509Certificate(pem).publicKey);
