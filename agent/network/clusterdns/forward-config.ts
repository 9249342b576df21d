/**
 * Reads the ConfigMap `kube-system/kube-dns`, in the form that kube-dns has: `stubDomains` maps domains to the name servers
 * that know them, `upstreamNameservers` replaces the name servers of the host. Pure.
 *
 * Invalid entries are left out and reported, so that they do not stop the name server.
 */
import { isIP } from 'node:net';
import { parseUpstream } from './upstream.ts';
import { quoteText } from '../../../api/meta/quote.ts';

/** The decoded configuration, limited in size. */
export interface ForwardConfig {
  /** The servers of each domain, in lower case and without a dot at the end. */
  readonly stubDomains: ReadonlyMap<string, readonly string[]>;
  /** The servers for all other names; empty if those of the host are used. */
  readonly upstreams: readonly string[];
  /** Messages about invalid entries, without a full stop. */
  readonly problems: readonly string[];
}

/** The configuration of a cluster without the ConfigMap: all queries go to the servers of the host. */
export const NO_FORWARD_CONFIG: ForwardConfig = { stubDomains: new Map(), upstreams: [], problems: [] };

/** The maximum number of stub domains that are used. */
const MAX_DOMAINS = 1000;
/** The maximum number of name servers of a domain, and of `upstreamNameservers`, as in kube-dns. */
const MAX_SERVERS = 3;
const DOMAIN = /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$/;

interface ForwardSurroundings {
  /** The domain of the cluster, whose names the nodes know. */
  readonly domain: string;
  /** The addresses of the cluster's name server, which must not ask itself. */
  readonly nameServers: readonly string[];
}

/**
 * Decodes the data of the ConfigMap, which is `undefined` if the ConfigMap does not exist. Never throws: mistakes are problems.
 */
export function forwardConfig(
  data: Readonly<Record<string, string>> | undefined,
  surroundings: ForwardSurroundings,
): ForwardConfig {
  const problems: string[] = [];
  const stubDomains = new Map<string, readonly string[]>();
  const parsed = parseJson(data?.['stubDomains'], 'stubDomains', problems);
  if (parsed !== undefined && (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)))
    problems.push('stubDomains is not a JSON object');
  else
    for (const [text, value] of Object.entries(parsed ?? {})) {
      const name = text.toLowerCase().replace(/\.$/, '');
      if (stubDomains.size === MAX_DOMAINS) {
        problems.push(`stubDomains has more than ${MAX_DOMAINS} domains`);
        break;
      }
      const isOwn = name === surroundings.domain || name.endsWith(`.${surroundings.domain}`);
      const servers = serversOf(value, surroundings, `the domain ${quoted(text)}`, problems);
      if (!DOMAIN.test(name)) problems.push(`${quoted(text)} is not a domain`);
      else if (isOwn) problems.push(`${quoted(text)} belongs to the cluster`);
      else if (servers.length > 0) stubDomains.set(name, servers);
    }
  const upstreams = parseJson(data?.['upstreamNameservers'], 'upstreamNameservers', problems);
  return {
    stubDomains,
    upstreams: upstreams === undefined ? [] : serversOf(upstreams, surroundings, 'upstreamNameservers', problems),
    problems,
  };
}

/** Returns the servers of the longest domain that the name is in; `undefined` if it is in none. */
export function stubServers({ stubDomains }: ForwardConfig, name: string): readonly string[] | undefined {
  if (stubDomains.size === 0) return undefined;
  let domain = name.toLowerCase().replace(/\.$/, '');
  for (;;) {
    const found = stubDomains.get(domain);
    if (found !== undefined) return found;
    const dot = domain.indexOf('.');
    if (dot < 0) return undefined;
    domain = domain.slice(dot + 1);
  }
}

function parseJson(text: string | undefined, field: string, problems: string[]): unknown {
  if (text === undefined || text.trim() === '') return undefined;
  try {
    return JSON.parse(text);
  } catch {
    // A mistake is a problem of the configuration.
    problems.push(`${field} is not valid JSON`);
    return undefined;
  }
}

function serversOf(value: unknown, { nameServers }: ForwardSurroundings, where: string, problems: string[]): string[] {
  if (!Array.isArray(value)) {
    problems.push(`${where} has no list of name servers`);
    return [];
  }
  const servers: string[] = [];
  for (const server of value.slice(0, MAX_SERVERS) as unknown[]) {
    const { address, port } = typeof server === 'string' ? parseUpstream(server) : { address: '', port: 0 };
    if (isIP(address) === 0 || !(port > 0 && port <= 0xffff))
      problems.push(`${where} has ${quoted(server)}, which is not the address of a name server`);
    else if (nameServers.includes(address))
      problems.push(`${where} has ${address}, the name server of the cluster itself`);
    else servers.push(String(server));
  }
  if (value.length > MAX_SERVERS) problems.push(`${where} has more than ${MAX_SERVERS} name servers`);
  return servers;
}

const quoted = (value: unknown): string => quoteText(String(value).slice(0, 100));
