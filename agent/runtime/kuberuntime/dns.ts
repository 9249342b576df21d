/**
 * Computes a pod's host name and resolver configuration from its DNS policy, the cluster's DNS and the host's. Pure, except for
 * reading the host's resolver file.
 */
import { trimEnd } from '../../../api/component/trim.ts';
import { readFile } from 'node:fs/promises';
import { MAX_NAMESERVERS, MAX_SEARCHES, MAX_SEARCH_CHARACTERS } from '../../../api/kinds/dns-limits.ts';
import { MAX_LABEL_LENGTH, MAX_SUBDOMAIN_LENGTH } from '../../../api/meta/names.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import type { Pod } from '../../base/model/pod.ts';
import { formatPod } from './pod-containers.ts';

/** The lines of a resolver configuration. */
export interface DnsConfig {
  readonly servers: readonly string[];
  readonly searches: readonly string[];
  readonly options: readonly string[];
}

/** The flags of DNS. */
export interface DnsSettings {
  readonly clusterDns: readonly string[];
  readonly clusterDomain: string;
  /** `--resolv-conf`; '' for none. */
  readonly resolvConf: string;
}

/** The maximum length of a host name in Linux. */
const MAX_HOSTNAME_LENGTH = 64;
/** Matches a valid option. The API takes any text, and a line break in it would add lines to the resolver file. */
const ONE_WORD = /^[\x21-\x7e]+$/;

/** Reports a warning event for a pod whose resolver configuration is incomplete. */
export type DnsWarning = (reason: 'DNSConfigForming' | 'MissingClusterDNS', message: string) => void;

function parseResolvConf(text: string): DnsConfig {
  const servers: string[] = [];
  let searches: string[] = [];
  let options: string[] = [];
  for (const line of text.split('\n')) {
    const [word = '', ...values] = line.trim().split(/\s+/);
    if (word === 'nameserver' && values[0] !== undefined) servers.push(values[0]);
    if (word === 'search') searches = values.map((search) => (search === '.' ? search : search.replace(/\.$/, '')));
    if (word === 'options') options = values;
  }
  return { servers, searches, options };
}

/** The addresses at which systemd-resolved answers processes of the host, and the file with the name servers behind it. */
const RESOLVED_STUBS: ReadonlySet<string> = new Set(['127.0.0.53', '127.0.0.54']);
const RESOLVED_SERVERS = '/run/systemd/resolve/resolv.conf';

/**
 * Returns the name servers of the host. Pods cannot reach the stub of systemd-resolved, and it may ask the cluster's name
 * server itself, so the servers behind it take its place. The kubelet needs `--resolv-conf` for that. Rejects if the host's
 * resolver file cannot be read.
 */
export async function hostDns(settings: DnsSettings, resolvedServers = RESOLVED_SERVERS): Promise<DnsConfig> {
  // Without a file, the name server of this host resolves names.
  if (settings.resolvConf === '') return { servers: ['127.0.0.1'], searches: ['.'], options: [] };
  const host = parseResolvConf(await readFile(settings.resolvConf, 'utf8'));
  if (!host.servers.some((server) => RESOLVED_STUBS.has(server))) return host;
  const resolved = await readFile(resolvedServers, 'utf8').then(parseResolvConf, (error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  return resolved === undefined || resolved.servers.length === 0 ? host : resolved;
}

/** Returns the configuration, cut to the limits of the resolver. What is cut is reported to `warn`. */
export function podDns(
  pod: Pod,
  settings: DnsSettings,
  host: DnsConfig,
  warn: DnsWarning = () => undefined,
): DnsConfig {
  let policy = pod.spec.dnsPolicy ?? 'ClusterFirst';
  if (policy === 'ClusterFirst' && pod.spec.hostNetwork === true) policy = 'Default';
  if (policy === 'ClusterFirstWithHostNet') policy = 'ClusterFirst';
  // Without a cluster DNS, the DNS of the host is used.
  if (policy === 'ClusterFirst' && settings.clusterDns.length === 0) {
    const text = `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`;
    warn('MissingClusterDNS', `pod: "${formatPod(pod)}". ${text}`);
    policy = 'Default';
  }
  let config: DnsConfig = { servers: [], searches: [], options: [] };
  if (policy === 'Default') config = host;
  if (policy === 'ClusterFirst') {
    const { clusterDomain: domain } = settings;
    const inherited = settings.resolvConf === '' ? [] : host.searches;
    const cluster = domain === '' ? [] : [`${pod.metadata.namespace}.svc.${domain}`, `svc.${domain}`, domain];
    config = {
      servers: settings.clusterDns,
      searches: [...new Set([...cluster, ...inherited])],
      options: ['ndots:5'],
    };
  }
  const podConfig = pod.spec.dnsConfig;
  if (podConfig !== undefined) {
    const options = new Map(config.options.map((option) => [option.split(':')[0] ?? '', option]));
    for (const { name = '', value } of podConfig.options ?? []) {
      const option = value === undefined || value === '' ? name : `${name}:${value}`;
      if (ONE_WORD.test(option)) options.set(name, option);
      else warn('DNSConfigForming', `The DNS option ${quoteText(option)} is not one word and has been omitted`);
    }
    config = {
      servers: [...new Set([...config.servers, ...(podConfig.nameservers ?? [])])],
      searches: [...new Set([...config.searches, ...(podConfig.searches ?? [])])],
      options: [...options.values()],
    };
  }
  return withinLimits(config, warn);
}

/**
 * Truncates the configuration to the limits of resolvers: the number of servers, and the number of search domains, their
 * lengths and their total length.
 */
function withinLimits({ servers, searches, options }: DnsConfig, warn: DnsWarning): DnsConfig {
  const applied = servers.slice(0, MAX_NAMESERVERS);
  if (applied.length < servers.length)
    warn(
      'DNSConfigForming',
      `Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: ${applied.join(' ')}`,
    );
  const fitting = searches.slice(0, MAX_SEARCHES).filter((search) => search.length <= MAX_SUBDOMAIN_LENGTH);
  while (fitting.join(' ').length > MAX_SEARCH_CHARACTERS) fitting.pop();
  if (fitting.length < searches.length)
    warn(
      'DNSConfigForming',
      `Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ${fitting.join(' ')}`,
    );
  return { servers: applied, searches: fitting, options };
}

/** The names of a pod. */
export interface PodHostname {
  /** The host name, as the command `hostname` prints it. */
  readonly hostname: string;
  /** '' where the pod has no name in the cluster's DNS. */
  readonly domain: string;
}

/**
 * Returns the host name of a pod and its domain. Throws if the fully qualified name is longer than the 64 bytes that Linux
 * allows.
 */
export function podHostname(pod: Pod, clusterDomain: string): PodHostname {
  const short =
    pod.spec.hostname !== undefined && pod.spec.hostname !== ''
      ? pod.spec.hostname
      : trimEnd(pod.metadata.name.slice(0, MAX_LABEL_LENGTH), '-.');
  const domain =
    pod.spec.subdomain === undefined || pod.spec.subdomain === ''
      ? ''
      : `${pod.spec.subdomain}.${pod.metadata.namespace}.svc.${clusterDomain}`;
  if (pod.spec.hostnameOverride !== undefined && pod.spec.hostnameOverride !== '')
    return { hostname: pod.spec.hostnameOverride, domain: '' };
  if (pod.spec.setHostnameAsFQDN === true && domain !== '') {
    const full = `${short}.${domain}`;
    if (full.length > MAX_HOSTNAME_LENGTH)
      throw new Error(
        `failed to construct FQDN from pod hostname and cluster domain, FQDN ${full} is too long (${MAX_HOSTNAME_LENGTH} characters is the max, ${full.length} characters requested)`,
      );
    return { hostname: full, domain };
  }
  return { hostname: short, domain };
}
