/**
 * Describes why a connection to another server failed, in the words of Kubernetes, which clients and operators search for.
 * Errors that are not listed keep the words of the platform. Pure.
 */
import { isIP } from 'node:net';

const UNKNOWN_AUTHORITY: ReadonlySet<string> = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);
const OUT_OF_DATE: ReadonlySet<string> = new Set(['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID']);
const CONNECT: ReadonlyMap<string, string> = new Map([
  ['ECONNREFUSED', 'connection refused'],
  ['EHOSTUNREACH', 'no route to host'],
  ['ENETUNREACH', 'network is unreachable'],
  ['ETIMEDOUT', 'connection timed out'],
]);

interface PlatformError extends Error {
  readonly code?: string;
  readonly address?: string;
  readonly port?: number;
  readonly hostname?: string;
  /** The host whose name the certificate does not contain. */
  readonly host?: string;
  readonly cert?: { readonly subjectaltname?: string };
}

/** Returns Go's text for an error of Node.js, such as `dial tcp 10.0.0.1:443: connect: connection refused`. */
export function connectionProblem(error: Error): string {
  const { code = '', address, port, hostname, host = '', cert, message } = error as PlatformError;
  const connect = CONNECT.get(code);
  if (connect !== undefined && address !== undefined) return `dial tcp ${address}:${port}: connect: ${connect}`;
  if (code === 'ENOTFOUND') return `dial tcp: lookup ${hostname}: no such host`;
  if (code === 'ECONNRESET' && message === 'socket hang up') return 'EOF';
  if (code === 'ERR_SSL_WRONG_VERSION_NUMBER' || (code === 'EPROTO' && message.includes('wrong version number')))
    return 'http: server gave HTTP response to HTTPS client';
  const refused = certificateProblem(code, host, cert?.subjectaltname);
  return refused === undefined ? message : `tls: failed to verify certificate: x509: ${refused}`;
}

function certificateProblem(code: string, host: string, names: string | undefined): string | undefined {
  if (UNKNOWN_AUTHORITY.has(code)) return 'certificate signed by unknown authority';
  if (OUT_OF_DATE.has(code)) return 'certificate has expired or is not yet valid';
  if (code !== 'ERR_TLS_CERT_ALTNAME_INVALID') return undefined;
  const ofKind = (kind: string): readonly string[] =>
    (names ?? '')
      .split(', ')
      .filter((entry) => entry.startsWith(`${kind}:`))
      .map((entry) => entry.slice(kind.length + 1));
  const isAddress = isIP(host) !== 0;
  const valid = ofKind(isAddress ? 'IP Address' : 'DNS');
  if (valid.length > 0) return `certificate is valid for ${valid.join(', ')}, not ${host}`;
  return isAddress
    ? `cannot validate certificate for ${host} because it doesn't contain any IP SANs`
    : `certificate is not valid for any names, but wanted to match ${host}`;
}
