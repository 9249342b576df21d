/**
 * Computes the nftables objects for service ports: what every host has (`baseObjects`), and what one port adds (`portObjects`).
 * Pure. `NftablesTransactions` turns differences into transactions.
 *
 * The table has the address family's own type (`ip orchlet-services`). A packet costs a lookup by address, protocol and port,
 * whatever the number of services. It is translated in the chain of its port. A packet that cannot be translated passes the
 * filter hooks with its original destination, and is rejected or dropped there. A packet is marked for masquerading if it comes
 * from outside the cluster, or from this host; one that returns to the pod which sent it is masqueraded by the set `hairpin`.
 *
 * The hooks run just before those of iptables and Docker, because only the first translation of a connection has an effect.
 */
import { createHash } from 'node:crypto';
import type { Family } from './addresses.ts';
import type { RuleSettings } from './rule-writer.ts';
import type { Endpoint, ServicePort } from './service-ports.ts';

export interface NftChain {
  readonly name: string;
  /** The declaration of a base chain. */
  readonly hook?: string;
  readonly rules: readonly string[];
}

/** A set, or a map if its type has a colon. */
export interface NftSet {
  readonly name: string;
  readonly declaration: string;
}

export interface NftElement {
  readonly set: string;
  readonly key: string;
  readonly value?: string;
}

export interface NftObjects {
  readonly sets: readonly NftSet[];
  readonly chains: readonly NftChain[];
  readonly elements: readonly NftElement[];
}

const WORDS = {
  IPv4: { ip: 'ip', type: 'ipv4_addr', loopback: '127.0.0.0/8' },
  IPv6: { ip: 'ip6', type: 'ipv6_addr', loopback: '::1' },
} as const;

/** The type of the table of a family, which is also the prefix of matches on its addresses. */
export const tableType = (family: Family): 'ip' | 'ip6' => WORDS[family].ip;

const MARK = 'jump mark-for-masquerade';
const LONGEST_NAME = 200;

export function baseObjects(settings: RuleSettings): NftObjects {
  const { ip, type } = WORDS[settings.family];
  const byAddress = `type ${type} . inet_proto . inet_service : verdict`;
  const byNumber = 'type inet_proto . inet_service : verdict';
  return {
    sets: [
      { name: 'cluster-ips', declaration: `type ${type}` },
      { name: 'hairpin', declaration: `type ${type} . ${type}` },
      { name: 'service-ips', declaration: byAddress },
      { name: 'service-nodeports', declaration: byNumber },
      { name: 'no-endpoint-services', declaration: byAddress },
      { name: 'no-endpoint-nodeports', declaration: byNumber },
      { name: 'firewall-ips', declaration: byAddress },
    ],
    chains: [
      ...translationChains(settings),
      { name: 'reject-packet', rules: ['reject'] },
      { name: 'firewall-check', rules: [`${ip} daddr . meta l4proto . th dport vmap @firewall-ips`] },
      {
        name: 'endpoints-check',
        rules: [
          `${ip} daddr . meta l4proto . th dport vmap @no-endpoint-services`,
          ...nodePortMatches(settings).map((match) => `${match} vmap @no-endpoint-nodeports`),
        ],
      },
      ...hookChains(settings),
    ],
    elements: [],
  };
}

/** The matches of node ports: a rule for each range of addresses. */
function nodePortMatches({ family, nodePortRanges }: RuleSettings): string[] {
  const { ip, loopback } = WORDS[family];
  const addresses =
    nodePortRanges.length > 0 ? nodePortRanges.map((range) => `${ip} daddr ${range}`) : [`${ip} daddr != ${loopback}`];
  return addresses.map((address) => `fib daddr type local ${address} meta l4proto . th dport`);
}

function translationChains(settings: RuleSettings): NftChain[] {
  const { family, podCidrs, nameServer, masqueradeBit } = settings;
  const { ip } = WORDS[family];
  const mark = `0x${(2 ** masqueradeBit).toString(16)}`;
  return [
    { name: 'mark-for-masquerade', rules: [`meta mark set meta mark or ${mark}`] },
    {
      // Traffic to cluster IPs. A node without a range of pods cannot distinguish its pods from other clients.
      name: 'mark-from-outside',
      rules: [
        `fib saddr type local ${MARK}`,
        ...podCidrs.map((cidr) => `${ip} saddr ${cidr} return`),
        ...(podCidrs.length > 0 ? [MARK] : []),
      ],
    },
    {
      name: 'services',
      rules: [
        ...(nameServer?.addresses ?? []).map(
          (address) =>
            `${ip} daddr ${address} meta l4proto { tcp, udp } th dport 53 redirect to :${nameServer?.port ?? 0}`,
        ),
        `${ip} daddr @cluster-ips jump mark-from-outside`,
        `${ip} daddr . meta l4proto . th dport vmap @service-ips`,
        ...nodePortMatches(settings).map((match) => `${match} vmap @service-nodeports`),
      ],
    },
    {
      name: 'masquerading',
      rules: [
        `ct status dnat ${ip} saddr . ${ip} daddr @hairpin masquerade fully-random`,
        `meta mark and ${mark} == 0 return`,
        // Removes the mark again, so that a packet that passes twice through a tunnel is masqueraded once.
        `meta mark set meta mark xor ${mark}`,
        'masquerade fully-random',
      ],
    },
  ];
}

function hookChains({ family, podCidrs, nameServer }: RuleSettings): NftChain[] {
  const { ip } = WORDS[family];
  const hook = (type: string, at: string, priority: number): string =>
    `type ${type} hook ${at} priority ${priority}; policy accept;`;
  const check = 'ct state new jump endpoints-check';
  const toNameServer = `meta l4proto { tcp, udp } th dport ${nameServer?.port ?? 0} ct state new`;
  // The kernel does not translate replies that belong to no connection it knows: clients would see the address of the pod.
  const invalid = podCidrs.map((cidr) => `${ip} saddr ${cidr} ct state invalid drop`);
  const unknownPort = `ct state new ${ip} daddr @cluster-ips reject`;
  return [
    {
      name: 'firewall-prerouting',
      hook: hook('filter', 'prerouting', -110),
      rules: ['ct state new jump firewall-check'],
    },
    { name: 'firewall-output', hook: hook('filter', 'output', -110), rules: ['ct state new jump firewall-check'] },
    { name: 'nat-prerouting', hook: hook('nat', 'prerouting', -101), rules: ['jump services'] },
    { name: 'nat-output', hook: hook('nat', 'output', -101), rules: ['jump services'] },
    { name: 'nat-postrouting', hook: hook('nat', 'postrouting', 99), rules: ['jump masquerading'] },
    {
      name: 'filter-input',
      hook: hook('filter', 'input', -1),
      rules: [
        ...(nameServer === undefined
          ? []
          : [`${toNameServer} ct status dnat accept`, `${toNameServer} fib saddr type != local drop`]),
        check,
      ],
    },
    { name: 'filter-forward', hook: hook('filter', 'forward', -1), rules: [...invalid, check, unknownPort] },
    { name: 'filter-output', hook: hook('filter', 'output', -1), rules: [check, unknownPort] },
  ];
}

export function portObjects(port: ServicePort, { family, podCidrs }: RuleSettings): NftObjects {
  const chains: NftChain[] = [];
  const sets: NftSet[] = [];
  const elements: NftElement[] = [{ set: 'cluster-ips', key: port.clusterIp }];
  const names = namesOf(port);
  const at = (address: string): string => `${address} . ${port.protocol.toLowerCase()} . ${port.port}`;
  const atNode = `${port.protocol.toLowerCase()} . ${port.nodePort}`;
  const outside = [...port.externalIps, ...port.loadBalancerIps];
  const refusal = port.hasEndpoints ? 'drop' : 'goto reject-packet';
  const add = (set: string, key: string, value: string): void => void elements.push({ set, key, value });

  if (port.internal.length > 0) add('service-ips', at(port.clusterIp), `goto ${names.of(port.internal)}`);
  else add('no-endpoint-services', at(port.clusterIp), refusal);
  const isExposed = outside.length > 0 || port.nodePort !== 0;
  if (isExposed && port.cluster.length > 0) {
    chains.push({ name: names.external, rules: externalRules(port, names, { family, podCidrs }) });
    for (const address of outside) add('service-ips', at(address), `goto ${names.external}`);
    if (port.nodePort !== 0) add('service-nodeports', atNode, `goto ${names.external}`);
  }
  if (isExposed && port.external.length === 0) {
    for (const address of outside) add('no-endpoint-services', at(address), refusal);
    if (port.nodePort !== 0) add('no-endpoint-nodeports', atNode, refusal);
  }
  if (port.loadBalancerIps.length > 0 && port.sourceRanges.length > 0) {
    const { ip } = WORDS[family];
    const allowed = port.sourceRanges.map((range) => `${ip} saddr ${range} return`);
    chains.push({ name: names.firewall, rules: [...allowed, 'drop'] });
    for (const address of port.loadBalancerIps) add('firewall-ips', at(address), `goto ${names.firewall}`);
  }
  balance(port, usedLists(port, isExposed), names, family, { chains, sets, elements });
  return { chains, sets, elements };
}

/** The distinct lists of endpoints that rules of the port lead to. */
function usedLists(port: ServicePort, isExposed: boolean): Set<readonly Endpoint[]> {
  const lists = new Set([port.internal]);
  if (isExposed) lists.add(port.external).add(port.cluster);
  return new Set([...lists].filter((list) => list.length > 0));
}

/** Traffic from this host and its pods is internal, so an external traffic policy does not apply to it. */
function externalRules(
  port: ServicePort,
  names: Names,
  { family, podCidrs }: Pick<RuleSettings, 'family' | 'podCidrs'>,
): string[] {
  if (!port.externalLocal) return [MARK, `goto ${names.of(port.external)}`];
  const inside = `goto ${names.of(port.cluster)}`;
  return [
    ...podCidrs.map((cidr) => `${WORDS[family].ip} saddr ${cidr} ${inside}`),
    `fib saddr type local ${MARK}`,
    `fib saddr type local ${inside}`,
    ...(port.external.length > 0 ? [`goto ${names.of(port.external)}`] : []),
  ];
}

interface Mutable {
  readonly chains: NftChain[];
  readonly sets: NftSet[];
  readonly elements: NftElement[];
}

/**
 * Selects an endpoint at random with equal probability. With session affinity, each endpoint has a chain, which remembers the
 * client in a set, and the client's previous endpoint comes first.
 */
function balance(
  port: ServicePort,
  lists: ReadonlySet<readonly Endpoint[]>,
  names: Names,
  family: Family,
  into: Mutable,
): void {
  const { ip, type } = WORDS[family];
  const protocol = port.protocol.toLowerCase();
  const endpoints = new Map([...lists].flat().map((endpoint) => [hostPort(endpoint), endpoint]));
  for (const address of new Set([...endpoints.values()].map((endpoint) => endpoint.ip)))
    into.elements.push({ set: 'hairpin', key: `${address} . ${address}` });
  if (port.affinitySeconds > 0) {
    for (const [address, endpoint] of endpoints) {
      const { chain, set } = names.endpoint(endpoint);
      into.sets.push({
        name: set,
        declaration: `type ${type}; flags dynamic,timeout; timeout ${port.affinitySeconds}s`,
      });
      into.chains.push({
        name: chain,
        rules: [`update @${set} { ${ip} saddr }`, `meta l4proto ${protocol} dnat to ${address}`],
      });
    }
  }
  for (const list of lists) {
    const choice = `numgen random mod ${list.length}`;
    const rules =
      port.affinitySeconds > 0
        ? [
            ...list.map(names.endpoint).map(({ chain, set }) => `${ip} saddr @${set} goto ${chain}`),
            `${choice} vmap { ${list.map((endpoint, at) => `${at} : goto ${names.endpoint(endpoint).chain}`).join(', ')} }`,
          ]
        : list.length === 1
          ? list.map((endpoint) => `meta l4proto ${protocol} dnat to ${hostPort(endpoint)}`)
          : [
              `meta l4proto ${protocol} dnat ${ip} to ${choice} map { ${list
                .map((endpoint, at) => `${at} : ${endpoint.ip} . ${endpoint.port}`)
                .join(', ')} }`,
            ];
    into.chains.push({ name: names.of(list), rules });
  }
}

const hostPort = ({ ip, port }: Endpoint): string => (ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`);

interface Names {
  readonly of: (endpoints: readonly Endpoint[]) => string;
  readonly external: string;
  readonly firewall: string;
  readonly endpoint: (endpoint: Endpoint) => { readonly chain: string; readonly set: string };
}

/**
 * Names begin with a hash, which makes them unique; the rest shows the port in `nft list ruleset`. A set has its
 * timeout in its name, because the timeout of an existing set cannot be changed.
 */
function namesOf(port: ServicePort): Names {
  const name = (...more: readonly string[]): string => {
    const text = [port.id.replace(':', '/'), port.protocol.toLowerCase(), ...more].join('/');
    const hash = createHash('sha256').update(text).digest('hex').slice(0, 12);
    return `${hash}-${text.replaceAll(/[^A-Za-z0-9/_-]/g, '.')}`.slice(0, LONGEST_NAME);
  };
  const base = name();
  return {
    of: (endpoints) => `${endpoints === port.cluster ? 'service' : 'local'}-${base}`,
    external: `external-${base}`,
    firewall: `firewall-${base}`,
    endpoint: ({ ip, port: number }) => {
      const own = name(ip, `${number}`);
      return { chain: `endpoint-${own}`, set: `affinity-${port.affinitySeconds}-${own}` };
    },
  };
}
