/**
 * Implements the identity by which control planes of one cluster recognize each other: a client certificate of the front-proxy
 * CA, whose key only control planes have. No token, no certificate request and no impersonation gives it to a user of the API,
 * not even to an administrator.
 */
import { join } from 'node:path';
import type { ClientCredentials } from '../../api/client/client-credentials.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/client/http-client.ts';
import type { DistinguishedName } from '../../api/pki/names.ts';
import { fixedCaBundle } from '../security/files/ca-bundle.ts';
import type { ClientConnection } from '../security/authentication/authentication.ts';
import { PeerVerifier } from '../security/authentication/client-certificate.ts';
import { AuthenticationError } from '../security/authentication/union.ts';
import { StartError } from '../model/start-error.ts';
import {
  issue,
  type KeyAndCertificate,
  readAuthority,
  type Authority,
  type Wanted,
} from '../security/pki/authority.ts';
import { readIfThere } from '../security/pki/files.ts';
import { MASTERS_GROUP } from '../../api/meta/system-users.ts';

const HOUR_MS = 3_600_000;
const MAX_ANSWER_BYTES = 64 * 1024;
const IDENTITY: Wanted = {
  subject: { commonName: 'orchlet-control-plane', organizations: [] },
  usages: ['client auth'],
  lifetimeMs: 24 * HOUR_MS,
};

/** Returns whether the client of a connection has the certificate that a path requires. */
export type PeerCheck = (connection: ClientConnection) => boolean;

/** Accepts valid certificates of the front-proxy CA (PEM) that have the common name of control planes. */
export function peerCheck(frontProxyCa: string, clock: Clock): PeerCheck {
  return certificateCheck(frontProxyCa, clock, ({ commonName }) => commonName === IDENTITY.subject.commonName);
}

/** Accepts valid certificates of the cluster's CA (PEM) with the organization `system:masters`. */
export function administratorCheck(ca: string, clock: Clock): PeerCheck {
  return certificateCheck(ca, clock, ({ organizations = [] }) => organizations.includes(MASTERS_GROUP));
}

function certificateCheck(ca: string, clock: Clock, accepts: (subject: DistinguishedName) => boolean): PeerCheck {
  const verifier = new PeerVerifier(fixedCaBundle(ca), clock);
  return (connection) => {
    try {
      const peer = verifier.verify({ headers: {}, connection });
      return peer !== undefined && accepts(peer.leaf.subject);
    } catch (error) {
      if (error instanceof AuthenticationError) return false;
      throw error;
    }
  };
}

/** The keys of a cluster by which its control planes recognize each other. */
export interface ClusterKeys {
  /** The CA of the cluster (PEM). */
  readonly ca: string;
  readonly frontProxyCa: Authority;
}

/** Reads the keys of the cluster, which `orchlet join --control-plane` has brought. Throws a StartError if one is missing. */
export async function readClusterKeys(dataDirectory: string): Promise<ClusterKeys> {
  const path = (name: string): string => join(dataDirectory, 'pki', name);
  const [ca, pem, key] = await Promise.all(
    ['ca.crt', 'front-proxy-ca.crt', 'front-proxy-ca.key'].map((name) => readIfThere(path(name))),
  );
  if (ca === undefined || pem === undefined || key === undefined)
    throw new StartError(
      `${join(dataDirectory, 'pki')} lacks the keys of the cluster: bring them to this host with 'orchlet join --control-plane'`,
    );
  return { ca, frontProxyCa: readAuthority(pem, key, path('front-proxy-ca.crt')) };
}

/**
 * Creates a client of another control plane of the cluster, which must be closed. `server` is its URL. The client certificate
 * is signed when it is needed, and again after an hour. `timeoutMs` limits each request by `json`.
 */
export function peerClient(
  server: string,
  { ca, frontProxyCa }: ClusterKeys,
  clock: Clock,
  { timeoutMs = 10_000 }: { readonly timeoutMs?: number } = {},
): HttpClient {
  return new HttpClient({
    server,
    ca,
    clock,
    credentials: identityCredentials(frontProxyCa, clock),
    connectTimeoutMs: 5000,
    timeoutMs,
    largestResponseBytes: MAX_ANSWER_BYTES,
  });
}

/** The certificate of a control plane for requests to others, which is issued again after an hour. */
export function identityCredentials(frontProxyCa: Authority, clock: Clock): ClientCredentials {
  let current: { readonly issued: Promise<KeyAndCertificate>; readonly atMs: number } | undefined;
  return {
    async current() {
      const nowMs = clock.now();
      if (current === undefined || Math.abs(nowMs - current.atMs) > HOUR_MS)
        current = { issued: issue(IDENTITY, frontProxyCa, nowMs), atMs: nowMs };
      const used = current;
      try {
        const { certificatePem, privateKeyPem } = await used.issued;
        return { certificate: certificatePem, key: privateKeyPem };
      } catch (error) {
        if (current === used) current = undefined;
        throw error;
      }
    },
  };
}
