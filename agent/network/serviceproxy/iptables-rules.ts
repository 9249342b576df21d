/**
 * Computes the netfilter rules of service ports, as lines of `iptables-restore`. Pure. All rules are in chains whose names
 * begin with `ORC-`. Other chains only get the jumps of `JUMPS` or `ACCEPT_JUMPS`.
 */
import { createHash } from 'node:crypto';
import { type Family, LOOPBACK } from './addresses.ts';
import type { NameServer, RuleSettings } from './rule-writer.ts';
import { type Endpoint, type ServicePort, endpointText } from './service-ports.ts';

/** A rule in a built-in chain that jumps to a chain of our own. */
export interface Jump {
  readonly table: 'nat' | 'filter';
  readonly from: string;
  readonly to: string;
  /** Further match arguments of the rule. */
  readonly match: readonly string[];
}

const NEW = ['-m', 'conntrack', '--ctstate', 'NEW'];

/** All jumps that must exist while rules are in effect, in the order of their chains. */
export const JUMPS: readonly Jump[] = [
  { table: 'nat', from: 'PREROUTING', to: 'ORC-SERVICES', match: [] },
  { table: 'nat', from: 'OUTPUT', to: 'ORC-SERVICES', match: [] },
  { table: 'nat', from: 'POSTROUTING', to: 'ORC-POSTROUTING', match: [] },
  { table: 'filter', from: 'INPUT', to: 'ORC-REFUSE', match: NEW },
  { table: 'filter', from: 'OUTPUT', to: 'ORC-REFUSE', match: NEW },
  { table: 'filter', from: 'FORWARD', to: 'ORC-REFUSE', match: NEW },
  { table: 'filter', from: 'FORWARD', to: 'ORC-FORWARD', match: [] },
];

/** The jumps to the rules of `acceptRules`. */
export const ACCEPT_JUMPS: readonly Jump[] = [
  { table: 'filter', from: 'INPUT', to: 'ORC-ACCEPT', match: [] },
  { table: 'filter', from: 'FORWARD', to: 'ORC-ACCEPT', match: [] },
];

/** The beginning of the names of all chains of the service proxy. */
export const CHAIN_PREFIX = 'ORC-';

/**
 * Returns the rules that let translated connections pass the iptables rules of Docker, ufw and others that drop what they do
 * not know. No rule of another table can do that, so these are needed beside rules of services in nftables.
 */
export function acceptRules(masqueradeBit: number): string {
  return `*filter\n:ORC-ACCEPT - [0:0]\n${acceptLines(masqueradeBit).join('\n')}\nCOMMIT\n`;
}

const acceptLines = (masqueradeBit: number): string[] => acceptsOf(markOf(masqueradeBit), 'ORC-ACCEPT');

/** Whether a table `filter`, in the lines of `iptables-save`, has `acceptRules` and the jumps to them. */
export function hasAcceptRules(table: readonly string[], masqueradeBit: number): boolean {
  const lines = new Set(table);
  const hasDocker = table.some((line) => line.startsWith(`:${DOCKER_USER} `));
  const jumps = ACCEPT_JUMPS.map((jump) => (hasDocker ? beforeDocker(jump) : jump));
  const wanted = [...acceptLines(masqueradeBit), ...jumps.map(({ from, to }) => `-A ${from} -j ${to}`)];
  return wanted.every((line) => lines.has(line));
}

/** Whether rules of others, or a policy, may drop packets that arrive here. `table` is as for `hasAcceptRules`. */
export function hasForeignRules(table: readonly string[]): boolean {
  return ['FORWARD', 'INPUT'].some((chain) =>
    table.some(
      (line) =>
        (line.startsWith(`:${chain} `) && !line.startsWith(`:${chain} ACCEPT `)) ||
        (line.startsWith(`-A ${chain} `) && !line.includes(`-j ${CHAIN_PREFIX}`)),
    ),
  );
}

/** The chain that Docker calls before its own rules. */
export const DOCKER_USER = 'DOCKER-USER';

/**
 * Moves a jump of FORWARD to Docker's chain for users. Whenever Docker creates a network, it inserts the rules that accept its
 * traffic before all others except this chain.
 */
export function beforeDocker(jump: Jump): Jump {
  return jump.from === 'FORWARD' ? { ...jump, from: DOCKER_USER } : jump;
}

const markOf = (bit: number): string => `0x${(2 ** bit).toString(16)}`;
const acceptsOf = (mark: string, chain: string): string[] => [
  `-A ${chain} -m mark --mark ${mark}/${mark} -j ACCEPT`,
  `-A ${chain} -m conntrack --ctstate DNAT -j ACCEPT`,
];

/** What one port adds: lines of the chains that all ports share, and chains of its own in the nat table. */
export interface PortRules {
  readonly services: readonly string[];
  readonly nodePorts: readonly string[];
  readonly refusals: readonly string[];
  readonly chains: ReadonlyMap<string, readonly string[]>;
}

/** Returns the chains of the nat table that all ports share. */
export function sharedNatChains(settings: RuleSettings, ports: readonly PortRules[]): [string, string[]][] {
  const { family, masqueradeBit, podCidrs, nameServer } = settings;
  const mark = markOf(masqueradeBit);
  return [
    ['ORC-MASQUERADE', [`-A ORC-MASQUERADE -j MARK --or-mark ${mark}`]],
    [
      // Traffic to cluster IPs. A node without a range of pods cannot distinguish its pods from other clients.
      'ORC-INSIDE',
      [
        '-A ORC-INSIDE -m addrtype --src-type LOCAL -j ORC-MASQUERADE',
        ...podCidrs.map((cidr) => `-A ORC-INSIDE -s ${cidr} -j RETURN`),
        ...(podCidrs.length > 0 ? ['-A ORC-INSIDE -j ORC-MASQUERADE'] : []),
      ],
    ],
    [
      'ORC-POSTROUTING',
      [
        ...(nameServer === undefined ? [] : [fromLoopback(nameServer, LOOPBACK[family])]),
        `-A ORC-POSTROUTING -m mark ! --mark ${mark}/${mark} -j RETURN`,
        // Removes the mark again, so that a packet that passes twice through a tunnel is masqueraded once.
        `-A ORC-POSTROUTING -j MARK --xor-mark ${mark}`,
        '-A ORC-POSTROUTING -j MASQUERADE --random-fully',
      ],
    ],
    [
      'ORC-SERVICES',
      [
        ...(nameServer === undefined ? [] : redirects(nameServer)),
        ...ports.flatMap(({ services }) => services),
        ...nodePortMatches(settings).map((match) => `-A ORC-SERVICES ${match} -j ORC-NODEPORTS`),
      ],
    ],
    ['ORC-NODEPORTS', ports.flatMap(({ nodePorts }) => nodePorts)],
  ];
}

/**
 * Returns the matches of addresses on which node ports are served. The kernel routes to 127.0.0.1 from node ports only if the
 * host is prepared for it.
 */
function nodePortMatches({ family, localhostNodePorts, nodePortRanges }: RuleSettings): string[] {
  const local = '-m addrtype --dst-type LOCAL';
  if (nodePortRanges.length > 0) return nodePortRanges.map((range) => `-d ${range} ${local}`);
  if (family === 'IPv4') return [localhostNodePorts ? local : `! -d 127.0.0.0/8 ${local}`];
  return [`! -d ::1/128 ${local}`];
}

/**
 * Returns the rule that gives the host's own queries the loopback address as their source. The name server answers them to the
 * address of their sender, which conntrack does not expect.
 */
const fromLoopback = ({ port }: NameServer, loopback: string): string =>
  `-A ORC-POSTROUTING -o lo -d ${loopback} -p udp -m udp --dport ${port} -m conntrack --ctstate DNAT -j SNAT --to-source ${loopback}`;

/**
 * Returns the rules that redirect queries to the address of the interface on which they arrived. Conntrack recognizes a
 * response from that address.
 */
function redirects({ addresses, port }: NameServer): string[] {
  return addresses.flatMap((address) =>
    ['udp', 'tcp'].map(
      (protocol) =>
        `-A ORC-SERVICES -d ${address} -p ${protocol} -m ${protocol} --dport 53 -j REDIRECT --to-ports ${port}`,
    ),
  );
}

/** Returns the chains of the table `filter` with their rules, from all ports together. */
export function filterChains(settings: RuleSettings, ports: readonly PortRules[]): [string, string[]][] {
  const { family, masqueradeBit, nameServer, localhostNodePorts, podCidrs } = settings;
  return [
    [
      'ORC-REFUSE',
      [
        // A kernel that routes to 127.0.0.1 for node ports would let neighbors reach services of the host that listen there.
        ...(family === 'IPv4' && localhostNodePorts
          ? ['-A ORC-REFUSE ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP']
          : []),
        ...(nameServer === undefined ? [] : nameServerGuard(nameServer)),
        ...ports.flatMap(({ refusals }) => refusals),
      ],
    ],
    [
      'ORC-FORWARD',
      [
        // The kernel does not translate replies that belong to no connection it knows: clients would see the pod's address.
        ...podCidrs.map((cidr) => `-A ORC-FORWARD -s ${cidr} -m conntrack --ctstate INVALID -j DROP`),
        ...acceptsOf(markOf(masqueradeBit), 'ORC-FORWARD'),
      ],
    ],
  ];
}

/** Returns the chains and rules of one service port. */
export function portRules(port: ServicePort, { family, podCidrs }: RuleSettings): PortRules {
  const rules = new PortChains(podCidrs);
  rules.service(port);
  return { ...rules, refusals: refusals(port, family) };
}

class PortChains {
  readonly services: string[] = [];
  readonly nodePorts: string[] = [];
  readonly chains = new Map<string, string[]>();
  readonly #podCidrs: readonly string[];

  constructor(podCidrs: readonly string[]) {
    this.#podCidrs = podCidrs;
  }

  service(port: ServicePort): void {
    const protocol = port.protocol.toLowerCase();
    const to = (address: string): string => `-d ${address} -p ${protocol} -m ${protocol} --dport ${port.port}`;
    const note = comment(port);
    if (port.internal.length > 0) {
      const chain = this.#balancingChain(port, port.internal);
      this.services.push(
        `-A ORC-SERVICES ${to(port.clusterIp)} ${note} -j ORC-INSIDE`,
        `-A ORC-SERVICES ${to(port.clusterIp)} ${note} -j ${chain}`,
      );
    }
    const isExposed = port.externalIps.length > 0 || port.loadBalancerIps.length > 0 || port.nodePort !== 0;
    if (port.cluster.length === 0 || !isExposed) return;
    const outside = this.#externalChain(port);
    for (const address of port.externalIps) this.services.push(`-A ORC-SERVICES ${to(address)} ${note} -j ${outside}`);
    for (const address of port.loadBalancerIps) {
      const sources = port.sourceRanges.length === 0 ? [''] : port.sourceRanges.map((range) => `-s ${range} `);
      for (const source of sources) this.services.push(`-A ORC-SERVICES ${source}${to(address)} ${note} -j ${outside}`);
    }
    if (port.nodePort !== 0)
      this.nodePorts.push(
        `-A ORC-NODEPORTS -p ${protocol} -m ${protocol} --dport ${port.nodePort} ${note} -j ${outside}`,
      );
  }

  /** Adds the chain for traffic to node ports, external IPs and load balancer IPs, and returns its name. */
  #externalChain(port: ServicePort): string {
    const chain = chainName('EXT', port.id, port.protocol);
    if (!port.externalLocal) {
      this.chains.set(chain, [
        `-A ${chain} -j ORC-MASQUERADE`,
        `-A ${chain} -j ${this.#balancingChain(port, port.external)}`,
      ]);
      return chain;
    }
    // Traffic from this host and its pods is internal, so the external traffic policy does not apply to it.
    const inside = this.#balancingChain(port, port.cluster);
    this.chains.set(chain, [
      ...this.#podCidrs.map((cidr) => `-A ${chain} -s ${cidr} -j ${inside}`),
      `-A ${chain} -m addrtype --src-type LOCAL -j ORC-MASQUERADE`,
      `-A ${chain} -m addrtype --src-type LOCAL -j ${inside}`,
      ...(port.external.length > 0 ? [`-A ${chain} -j ${this.#balancingChain(port, port.external)}`] : []),
    ]);
    return chain;
  }

  /**
   * Adds the chain that selects an endpoint at random with equal probability, and returns its name. With session affinity, the
   * client's previous endpoint comes first.
   */
  #balancingChain(port: ServicePort, endpoints: readonly Endpoint[]): string {
    // `SVC` has the endpoints of `port.cluster`, and `SVL` those on this node.
    const chain = chainName(endpoints === port.cluster ? 'SVC' : 'SVL', port.id, port.protocol);
    if (this.chains.has(chain)) return chain;
    const targets = endpoints.map((endpoint) => this.#endpointChain(port, endpoint));
    const rules: string[] = [];
    if (port.affinitySeconds > 0) {
      for (const target of targets)
        rules.push(
          `-A ${chain} -m recent --name ${target} --rcheck --seconds ${port.affinitySeconds} --reap -j ${target}`,
        );
    }
    targets.forEach((target, index) => {
      const left = targets.length - index;
      const chance = left === 1 ? '' : `-m statistic --mode random --probability ${(1 / left).toFixed(10)} `;
      rules.push(`-A ${chain} ${chance}-j ${target}`);
    });
    this.chains.set(chain, rules);
    return chain;
  }

  /** Adds the chain that translates traffic to an endpoint, and returns its name. */
  #endpointChain(port: ServicePort, endpoint: Endpoint): string {
    const address = endpointText(endpoint);
    const chain = chainName('SEP', port.id, port.protocol, address);
    if (this.chains.has(chain)) return chain;
    const protocol = port.protocol.toLowerCase();
    const remember = port.affinitySeconds > 0 ? `-m recent --name ${chain} --set ` : '';
    this.chains.set(chain, [
      `-A ${chain} -s ${endpoint.ip} -j ORC-MASQUERADE`,
      `-A ${chain} ${remember}-p ${protocol} -m ${protocol} -j DNAT --to-destination ${address}`,
    ]);
    return chain;
  }
}

/**
 * Returns the rules that drop queries to the name server's port that were not sent to its cluster address, except those of this
 * host, so that it is not an open resolver.
 */
function nameServerGuard({ port }: NameServer): string[] {
  return ['udp', 'tcp'].flatMap((protocol) => {
    const to = `-A ORC-REFUSE -p ${protocol} -m ${protocol} --dport ${port}`;
    return [`${to} -m conntrack --ctstate DNAT -j ACCEPT`, `${to} -m addrtype ! --src-type LOCAL -j DROP`];
  });
}

/**
 * Returns the rules that reject traffic to a port without endpoints, so that the client fails at once. If only this node lacks
 * endpoints, they drop the traffic instead, so that the load balancer tries another node. They also drop what comes from
 * outside of the source ranges.
 */
function refusals(port: ServicePort, family: Family): string[] {
  const protocol = port.protocol.toLowerCase();
  const note = comment(port);
  const reject = `REJECT --reject-with ${family === 'IPv4' ? 'icmp-port-unreachable' : 'icmp6-port-unreachable'}`;
  const verdict = port.hasEndpoints ? 'DROP' : reject;
  const to = (address: string, number: number): string =>
    `-A ORC-REFUSE -d ${address} -p ${protocol} -m ${protocol} --dport ${number} ${note}`;
  const lines: string[] = [];
  if (port.internal.length === 0) lines.push(`${to(port.clusterIp, port.port)} -j ${verdict}`);
  if (port.external.length === 0) {
    for (const address of [...port.externalIps, ...port.loadBalancerIps])
      lines.push(`${to(address, port.port)} -j ${verdict}`);
    if (port.nodePort !== 0)
      lines.push(
        `-A ORC-REFUSE -m addrtype --dst-type LOCAL -p ${protocol} -m ${protocol} --dport ${port.nodePort} ${note} -j ${verdict}`,
      );
  } else if (port.sourceRanges.length > 0) {
    // Traffic from allowed source ranges has already been redirected before this rule.
    for (const address of port.loadBalancerIps) lines.push(`${to(address, port.port)} -j DROP`);
  }
  return lines;
}

/**
 * Returns the comment that names the port in a rule. Characters that could end the quoted text are replaced: another API server
 * may allow them in names.
 */
const comment = ({ id }: ServicePort): string =>
  `-m comment --comment "${id.replaceAll(/[^A-Za-z0-9./:_-]/g, '?').slice(0, 255)}"`;

/** Returns the name of a chain: the kind and a hash of the parts, because iptables allows at most 28 characters. */
function chainName(kind: string, ...parts: readonly string[]): string {
  const hash = createHash('sha256').update(parts.join('\0')).digest('hex').slice(0, 16).toUpperCase();
  return `${CHAIN_PREFIX}${kind}-${hash}`;
}
