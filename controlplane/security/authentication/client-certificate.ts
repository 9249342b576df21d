/**
 * Authenticates clients by their certificates: the subject's common name is the user, and its organizations are the groups.
 *
 * The handshake only proves that the peer holds the key; this module verifies the issuer and the usages of the certificate. A
 * result is cached by a hash of the presented certificates, at most until the bundle changes or the chain expires; a refusal
 * for ten seconds at most.
 */
import { createHash, type X509Certificate } from 'node:crypto';
import type { Clock } from '../../../api/machinery/clock.ts';
import { parseCertificate, type Certificate } from '../../../api/pki/certificate.ts';
import { verifyChain, type ChainResult } from '../../../api/pki/chain.ts';
import { AuthenticationError } from './union.ts';
import type { CaBundle } from '../files/ca-bundle.ts';
import type { Authenticated, Authenticator, Credentials } from './authentication.ts';
import { CREDENTIAL_ID_EXTRA } from '../../../api/meta/system-users.ts';

/** The maximum number of certificates between that of a client and the CA. */
const MAX_INTERMEDIATES = 8;
/** The number of client certificates whose verification is remembered. */
const MAX_REMEMBERED = 2048;

interface VerifiedPeer {
  readonly leaf: Certificate;
  /** The SHA-256 of the leaf in hexadecimal digits. */
  readonly fingerprint: string;
  /** The earliest expiry of the certificates of the chain; for a refusal, the time until which it is cached. */
  readonly untilMs: number;
}

interface Remembered extends VerifiedPeer {
  readonly result: ChainResult;
}

/** The certificates that a client presented, and their hash. */
interface Presented {
  readonly raws: readonly Buffer[];
  readonly key: string;
}

/** Verifies peers against one bundle. */
export class PeerVerifier {
  readonly #bundle: CaBundle;
  readonly #clock: Clock;
  readonly #remembered = new Map<string, Remembered>();
  /** All requests of a connection have the same certificate. */
  readonly #presented = new WeakMap<X509Certificate, Presented>();
  #roots: readonly Certificate[] | undefined;

  constructor(bundle: CaBundle, clock: Clock) {
    this.#bundle = bundle;
    this.#clock = clock;
  }

  /** Returns `undefined` without a certificate. Throws the reason if the certificate is invalid. */
  verify(credentials: Credentials): VerifiedPeer | undefined {
    const peer = credentials.connection.peerCertificate;
    if (peer === undefined) return undefined;
    const roots = this.#bundle.certificates();
    if (roots !== this.#roots) {
      this.#roots = roots;
      this.#remembered.clear();
    }
    let presented = this.#presented.get(peer);
    if (presented === undefined) this.#presented.set(peer, (presented = presentedBy(peer)));
    const { raws, key } = presented;
    const nowMs = this.#clock.now();
    let remembered = this.#remembered.get(key);
    if (remembered === undefined || nowMs >= remembered.untilMs) {
      remembered = this.#verified(raws, roots, nowMs);
      if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.clear();
      this.#remembered.set(key, remembered);
    }
    if (!remembered.result.valid) throw new AuthenticationError([remembered.result.reason]);
    return remembered;
  }

  #verified(raws: readonly Buffer[], roots: readonly Certificate[], nowMs: number): Remembered {
    let parsed: Certificate[];
    try {
      parsed = raws.map(parseCertificate);
    } catch (error) {
      throw new AuthenticationError(['the client certificate cannot be read'], { cause: error });
    }
    const [leaf, ...intermediates] = parsed;
    if (leaf === undefined) throw new AuthenticationError(['no client certificate']);
    const result = verifyChain(leaf, { roots, intermediates, nowMs, usage: 'client auth' });
    // A refusal is cached for a short time only, because the certificate may become valid.
    const untilMs = result.valid ? Math.min(...result.chain.map((link) => link.notAfterMs)) : nowMs + 10_000;
    const fingerprint = createHash('sha256').update(leaf.raw).digest('hex');
    return { result, leaf, fingerprint, untilMs };
  }
}

function presentedBy(peer: X509Certificate): Presented {
  const raws = [peer.raw, ...intermediatesOf(peer)];
  const hash = createHash('sha256');
  for (const raw of raws) hash.update(raw);
  return { raws, key: hash.digest('base64') };
}

function intermediatesOf(leaf: X509Certificate): Buffer[] {
  const found: Buffer[] = [];
  let next = leaf.issuerCertificate;
  while (next !== undefined && found.length < MAX_INTERMEDIATES) {
    if (next.raw.equals(leaf.raw) || found.some((raw) => raw.equals(next?.raw ?? Buffer.alloc(0)))) break;
    found.push(next.raw);
    next = next.issuerCertificate;
  }
  return found;
}

interface ClientCertificateOptions {
  readonly verifier: PeerVerifier;
  /** Common names that are refused: the names by which the control plane authenticates to other servers. */
  readonly refusedNames?: ReadonlySet<string>;
  /** Receives the time, in milliseconds since 1970, at which the first certificate of an accepted chain expires. */
  readonly onAccepted?: (untilMs: number) => void;
}

/**
 * Creates the authenticator of client certificates. It returns `undefined` without a certificate, and for one without a common
 * name. It throws an `AuthenticationError` for an invalid certificate and for refused names.
 */
export function clientCertificateAuthenticator(options: ClientCertificateOptions): Authenticator {
  const { verifier, refusedNames, onAccepted } = options;
  return {
    authenticate(credentials): Authenticated | undefined {
      const peer = verifier.verify(credentials);
      if (peer === undefined) return undefined;
      const { commonName, organizations } = peer.leaf.subject;
      if (commonName === '') return undefined;
      if (refusedNames?.has(commonName) === true)
        throw new AuthenticationError([`the certificate of ${commonName} is not accepted from clients of the API`]);
      onAccepted?.(peer.untilMs);
      return {
        user: {
          name: commonName,
          groups: [...organizations],
          extra: { [CREDENTIAL_ID_EXTRA]: [`X509SHA256=${peer.fingerprint}`] },
        },
      };
    },
  };
}
