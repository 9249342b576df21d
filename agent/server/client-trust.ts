/**
 * Knows the CAs of clients, and whether a connection may still use the certificate with which it was opened: a connection can
 * outlive the CA of its client.
 */
import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { Clock } from '../../api/machinery/clock.ts';
import { type Certificate, parseCertificate, parseCertificates } from '../../api/pki/certificate.ts';
import { verifyChain } from '../../api/pki/chain.ts';
import { readRegularFile } from '../base/files/regular-file.ts';

/** The maximum size of a file of CAs. */
const MAX_BYTES = 16 << 20;
/** The maximum number of certificates between that of a client and the CA. */
const MAX_INTERMEDIATES = 8;

/**
 * Resolves to the PEM of `--client-ca-file`. Rejects for a file that cannot be read, and for one without certificates: Node.js
 * would trust the public CAs instead, each of which could then name users of the agent.
 */
export async function readClientCa(file: string): Promise<string> {
  const pem = (await readRegularFile(file, MAX_BYTES)).toString('utf8');
  if (parseCertificates(pem).length === 0) throw new Error(`${file} has no certificate`);
  return pem;
}

/** Owns the CAs of clients. */
export class ClientTrust {
  readonly #clock: Clock;
  #roots: readonly Certificate[] | undefined;
  /** Whether the current CAs trust the certificate of a connection, once it has been verified. */
  #verdicts = new WeakMap<Socket, boolean>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Replaces the CAs (PEM). Each connection is verified once more with its next request: its handshake may have begun before.
   */
  replace(pem: string): void {
    this.#roots = parseCertificates(pem);
    this.#verdicts = new WeakMap();
  }

  /**
   * Returns whether the client has no certificate, or a valid one that the current CAs have signed. Always returns true before
   * the first `replace`, because the handshake has verified the certificate with the same CAs.
   */
  isTrusted(socket: Socket): boolean {
    const roots = this.#roots;
    if (roots === undefined || !('getPeerX509Certificate' in socket)) return true;
    const verdict = this.#verdicts.get(socket);
    if (verdict !== undefined) return verdict;
    const isTrusted = this.#verify((socket as TLSSocket).getPeerX509Certificate(), roots);
    this.#verdicts.set(socket, isTrusted);
    return isTrusted;
  }

  #verify(certificate: X509Certificate | undefined, roots: readonly Certificate[]): boolean {
    if (certificate === undefined) return true;
    const chain: X509Certificate[] = [];
    for (let next: X509Certificate | undefined = certificate; next !== undefined; next = next.issuerCertificate) {
      if (chain.length > MAX_INTERMEDIATES || chain.some(({ raw }) => next?.raw.equals(raw))) break;
      chain.push(next);
    }
    const [leaf, ...intermediates] = chain.map(({ raw }) => parseCertificate(raw));
    return (
      leaf !== undefined &&
      verifyChain(leaf, { roots, intermediates, nowMs: this.#clock.now(), usage: 'client auth' }).valid
    );
  }
}
