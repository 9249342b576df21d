/**
 * Represents the TLS connection of a client, which its requests share. It holds what is the same for all of them, so that no
 * request determines it again.
 */
import type { X509Certificate } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import type { ClientConnection } from '../security/authentication/authentication.ts';

/** The client's certificate is read when a request first needs it. */
export class TlsConnection implements ClientConnection {
  readonly remoteAddress: string;
  readonly #socket: TLSSocket;
  readonly #onAccepted: () => void;
  #isAccepted = false;
  #certificate: { readonly value: X509Certificate | undefined } | undefined;

  /** `onAccepted` is called when the first request of the connection is accepted. */
  constructor(socket: TLSSocket, onAccepted: () => void) {
    this.#socket = socket;
    this.#onAccepted = onAccepted;
    // A socket has no address any more once the client is disconnected.
    this.remoteAddress = socket.remoteAddress ?? '';
  }

  accepted(): void {
    if (this.#isAccepted) return;
    this.#isAccepted = true;
    this.#onAccepted();
  }

  /**
   * The certificate of the client. It never changes: requests are read after the handshake, and OpenSSL allows clients no
   * second one.
   */
  get peerCertificate(): X509Certificate | undefined {
    this.#certificate ??= { value: this.#socket.getPeerX509Certificate() };
    return this.#certificate.value;
  }
}
