/**
 * Computes the nftables objects for service ports: what every host has (`baseObjects`), and what one port adds
 * (`portObjects`). Pure.
 *
 * The table has the type of the address family (`ip orchlet-services`). One lookup by address, protocol and port finds the
 * chain that translates a packet (DNAT), so the cost does not depend on the number of services. A packet to a port without
 * endpoints is not translated: the filter hooks see its original destination, and reject or drop it. The set `hairpin`
 * masquerades packets that a pod sends to itself by way of a service.
 *
 * The hooks run just before those of iptables and Docker, because only the first translation of a connection has an effect.
 */
import { createHash } from 'node:crypto';
import { type Family, LOOPBACK } from './addresses.ts';
import type { RuleSettings } from './rule-writer.ts';
import { type Endpoint, type ServicePort, endpointText } from './service-ports.ts';

interface NftChain {
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

interface NftElement {
  readonly set: string;
  readonly key: string;
  readonly value?: string;
}

/** Sets, maps, chains and elements of a table. Rules are texts in the syntax of `nft`. */
export interface NftObjects {
  readonly sets: readonly NftSet[];
  readonly chains: readonly NftChain[];
  readonly elements: readonly NftElement[];
}

/** How nftables writes matches and types of a family. */
const SYNTAX = {
  IPv4: { ip: 'ip', type: 'ipv4_addr', loopback: '127.0.0.0/8' },
  IPv6: { ip: 'ip6', type: 'ipv6_addr', loopback: '::1' },
} as const;

/** Returns the type of the table of a family, which is also the prefix of matches on its addresses. */
export const tableType = (family: Family): 'ip' | 'ip6' => SYNTAX[family].ip;

const MARK = 'jump mark-for-masquerade';
/** The maximum length of a name without its prefix, in characters. nftables allows 255 with it. */
const LONGEST_NAME = 200;

/** Returns the sets and chains that every host has, without elements. */
export function baseObjects(settings: RuleSettings): NftObjects {
  const { ip, type } = SYNTAX[settings.family];
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

/** Returns the matches of node ports: a rule for each range of addresses. */
function nodePortMatches({ family, nodePortRanges }: RuleSettings): string[] {
  const { ip, loopback } = SYNTAX[family];
  const addresses =
    nodePortRanges.length > 0 ? nodePortRanges.map((range) => `${ip} daddr ${range}`) : [`${ip} daddr != ${loopback}`];
  return addresses.map((address) => `fib daddr type local ${address} meta l4proto . th dport`);
}

function translationChains(settings: RuleSettings): NftChain[] {
  const { family, podCidrs, nameServer, masqueradeBit } = settings;
  const { ip } = SYNTAX[family];
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
        ...(nameServer === undefined
          ? []
          : // The name server answers the host's own queries from the address of their sender, which conntrack does not expect.
            [
              `oif lo ${ip} daddr ${LOOPBACK[family]} udp dport ${nameServer.port} ct status dnat snat to ${LOOPBACK[family]}`,
            ]),
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
  const { ip } = SYNTAX[family];
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

/** Returns what one port adds. Ports of a service have elements in common, such as that of the cluster IP. */
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
    const { ip } = SYNTAX[family];
    const allowed = port.sourceRanges.map((range) => `${ip} saddr ${range} return`);
    chains.push({ name: names.firewall, rules: [...allowed, 'drop'] });
    for (const address of port.loadBalancerIps) add('firewall-ips', at(address), `goto ${names.firewall}`);
  }
  const lists = usedLists(port, isExposed);
  addEndpoints(port, lists, { names, family }, { chains, sets, elements });
  for (const list of lists) chains.push({ name: names.of(list), rules: balancingRules(list, port, names, family) });
  return { chains, sets, elements };
}

/** Returns the distinct lists of endpoints that rules of the port lead to. */
function usedLists(port: ServicePort, isExposed: boolean): Set<readonly Endpoint[]> {
  const lists = new Set([port.internal]);
  if (isExposed) lists.add(port.external).add(port.cluster);
  return new Set([...lists].filter((list) => list.length > 0));
}

/**
 * Returns the rules for traffic to the external addresses of a port. Traffic from this host and its pods is internal, so an
 * external traffic policy does not apply to it.
 */
function externalRules(
  port: ServicePort,
  names: Names,
  { family, podCidrs }: Pick<RuleSettings, 'family' | 'podCidrs'>,
): string[] {
  if (!port.externalLocal) return [MARK, `goto ${names.of(port.external)}`];
  const inside = `goto ${names.of(port.cluster)}`;
  return [
    ...podCidrs.map((cidr) => `${SYNTAX[family].ip} saddr ${cidr} ${inside}`),
    `fib saddr type local ${MARK}`,
    `fib saddr type local ${inside}`,
    ...(port.external.length > 0 ? [`goto ${names.of(port.external)}`] : []),
  ];
}

interface MutableObjects {
  readonly chains: NftChain[];
  readonly sets: NftSet[];
  readonly elements: NftElement[];
}

/** Adds the endpoints of the lists to the set `hairpin`, and for session affinity the chain and the set of each. */
function addEndpoints(
  port: ServicePort,
  lists: ReadonlySet<readonly Endpoint[]>,
  { names, family }: { readonly names: Names; readonly family: Family },
  { chains, sets, elements }: MutableObjects,
): void {
  const { ip, type } = SYNTAX[family];
  const endpoints = new Map([...lists].flat().map((endpoint) => [endpointText(endpoint), endpoint]));
  for (const address of new Set([...endpoints.values()].map((endpoint) => endpoint.ip)))
    elements.push({ set: 'hairpin', key: `${address} . ${address}` });
  if (port.affinitySeconds === 0) return;
  for (const [address, endpoint] of endpoints) {
    const { chain, set } = names.endpoint(endpoint);
    sets.push({ name: set, declaration: `type ${type}; flags dynamic,timeout; timeout ${port.affinitySeconds}s` });
    chains.push({
      name: chain,
      rules: [`update @${set} { ${ip} saddr }`, `meta l4proto ${port.protocol.toLowerCase()} dnat to ${address}`],
    });
  }
}

/**
 * Returns the rules that select an endpoint of the list at random with equal probability. With session affinity, the endpoint
 * that the client used before comes first.
 */
function balancingRules(list: readonly Endpoint[], port: ServicePort, names: Names, family: Family): string[] {
  const { ip } = SYNTAX[family];
  const random = `numgen random mod ${list.length}`;
  if (port.affinitySeconds > 0) {
    const endpoints = list.map(names.endpoint);
    const verdicts = endpoints.map(({ chain }, at) => `${at} : goto ${chain}`);
    return [
      ...endpoints.map(({ chain, set }) => `${ip} saddr @${set} goto ${chain}`),
      `${random} vmap { ${verdicts.join(', ')} }`,
    ];
  }
  const match = `meta l4proto ${port.protocol.toLowerCase()}`;
  const [first, second] = list;
  if (first !== undefined && second === undefined) return [`${match} dnat to ${endpointText(first)}`];
  const targets = list.map((endpoint, at) => `${at} : ${endpoint.ip} . ${endpoint.port}`);
  return [`${match} dnat ${ip} to ${random} map { ${targets.join(', ')} }`];
}

/** The names of the chains and sets of one port. */
interface Names {
  /** The chain that selects one of these endpoints. */
  readonly of: (endpoints: readonly Endpoint[]) => string;
  /** The chain for traffic to node ports, external IPs and load balancer IPs. */
  readonly external: string;
  /** The chain that drops traffic from outside of the source ranges. */
  readonly firewall: string;
  /** The chain that leads to the endpoint, and the set of its clients, for session affinity. */
  readonly endpoint: (endpoint: Endpoint) => { readonly chain: string; readonly set: string };
}

/**
 * Returns the names of a port's chains and sets. Each has a hash, which makes it unique; the rest shows the port in
 * `nft list ruleset`. A set has its timeout in its name, because the timeout of an existing set cannot be changed.
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
      const endpointName = name(ip, `${number}`);
      return { chain: `endpoint-${endpointName}`, set: `affinity-${port.affinitySeconds}-${endpointName}` };
    },
  };
}
