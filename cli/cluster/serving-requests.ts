/**
 * Checks what a node asks to be named in its serving certificate. The cluster's CA signs it, which clients of the API server
 * trust as well: with a name of another server, a node could pass for that server.
 */
import { isIP } from 'node:net';
import type { CertificateSigningRequest, Endpoints, Node } from '../../api/kinds/kinds.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { ipBytes, ipText } from '../../api/pki/names.ts';
import { type CertificateRequest, parseCsr } from '../../api/pki/certificate-request.ts';
import { NODE_USER_PREFIX } from '../../api/meta/system-users.ts';

/** The names that nodes and API servers have. */
export interface ServingNames {
  readonly nodes: readonly Node[];
  /** Names and addresses by which clients reach the API server. */
  readonly apiServer: ReadonlySet<string>;
}

const API_NAME = /^(?:localhost|kubernetes(?:\.default(?:\.svc(?:\..*)?)?)?)$/;

/** Returns the names and addresses of the API server: those of its URL, of its Service, and of the endpoints of the Service. */
export function apiServerNames(
  server: string,
  clusterIps: readonly string[],
  endpoints: readonly Endpoints[],
): ReadonlySet<string> {
  const { hostname } = new URL(server);
  const addresses = endpoints.flatMap(({ subsets }) =>
    (subsets ?? []).flatMap((subset) => (subset.addresses ?? []).map(({ ip }) => ip)),
  );
  return new Set([hostname.replace(/^\[(.*)\]$/, '$1'), ...clusterIps, ...addresses].map(canonical));
}

/** Returns why the request is not approved without being named, or an empty string. */
export function servingFault(request: CertificateSigningRequest, { nodes, apiServer }: ServingNames): string {
  const { username = '', request: encoded = '' } = request.spec ?? {};
  let asked: CertificateRequest;
  try {
    asked = parseCsr(Buffer.from(encoded, 'base64').toString('latin1'));
  } catch (error) {
    return `it cannot be read: ${errorMessage(error)}`;
  }
  const name = asked.subject.commonName;
  if (name !== username || !name.startsWith(NODE_USER_PREFIX))
    return `it is for ${quoteText(name)}, not for its author`;
  const requestingNode = nodes.find(({ metadata }) => `${NODE_USER_PREFIX}${metadata.name}` === name);
  if (requestingNode === undefined) return `there is no node ${quoteText(name.slice(NODE_USER_PREFIX.length))}`;
  const allowedNames = namesOf(requestingNode);
  const others = new Map(
    nodes
      .filter((node) => node !== requestingNode)
      .flatMap((node) => [...namesOf(node)].map((one) => [one, node.metadata.name])),
  );
  for (const askedName of [...asked.names.dns, ...asked.names.ip, ...asked.names.email, ...asked.names.uri]) {
    const one = canonical(askedName);
    const shown = quoteText(one);
    if (API_NAME.test(one) || isLoopback(one) || apiServer.has(one)) return `${shown} names the API server`;
    const other = others.get(one);
    if (other !== undefined) return `${shown} names the node ${quoteText(other)}`;
    if (!allowedNames.has(one) || one.includes('*')) return `${shown} is no name or address of the node`;
  }
  return '';
}

function namesOf({ metadata, status }: Node): ReadonlySet<string> {
  return new Set([metadata.name ?? '', ...(status?.addresses ?? []).map(({ address }) => address)].map(canonical));
}

/** Returns the form in which names are compared: in lower case, and with an IPv4 address inside an IPv6 address as itself. */
function canonical(name: string): string {
  if (isIP(name) === 6) {
    const [, high, low] = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(ipText(ipBytes(name))) ?? [];
    if (high === undefined || low === undefined) return ipText(ipBytes(name));
    const [first, second] = [Number.parseInt(high, 16), Number.parseInt(low, 16)];
    return [first >> 8, first & 0xff, second >> 8, second & 0xff].join('.');
  }
  return name.toLowerCase().replace(/\.$/, '');
}

const isLoopback = (name: string): boolean => (isIP(name) === 4 ? name.startsWith('127.') : name === '::1');
