/**
 * Builds the netfilter rules for a set of service ports, as input of `iptables-restore --noflush`: one transaction for
 * each table, which replaces the chains of the previous one. Pure. All rules are in chains whose names begin with
 * `ORC-`. The built-in chains only get the jumps of `JUMPS`, which `iptables.ts` maintains.
 *
 * A packet is marked for masquerading if it comes from outside the cluster, from this host, or from the endpoint that
 * it goes to.
 */
import { createHash } from 'node:crypto';
import type { Family } from './addresses.ts';
import type { Endpoint, ServicePort } from './service-ports.ts';

export interface RuleSettings {
  readonly family: Family;
  /** The value of `--iptables-masquerade-bit`. */
  readonly masqueradeBit: number;
  /** The pod CIDRs of this node. Traffic from them is inside the cluster. */
  readonly podCidrs: readonly string[];
  /**
   * Redirects traffic to port 53 of these addresses to `port` of this host, where the agent's name server listens. All
   * other traffic to that port is dropped.
   */
  readonly nameServer?: NameServer | undefined;
}

export interface NameServer {
  readonly addresses: readonly string[];
  readonly port: number;
}

export interface Jump {
  readonly table: 'nat' | 'filter';
  readonly from: string;
  readonly to: string;
  /** Further match arguments of the rule. */
  readonly match: readonly string[];
}

const NEW = ['-m', 'conntrack', '--ctstate', 'NEW'];

export const JUMPS: readonly Jump[] = [
  { table: 'nat', from: 'PREROUTING', to: 'ORC-SERVICES', match: [] },
  { table: 'nat', from: 'OUTPUT', to: 'ORC-SERVICES', match: [] },
  { table: 'nat', from: 'POSTROUTING', to: 'ORC-POSTROUTING', match: [] },
  { table: 'filter', from: 'INPUT', to: 'ORC-REFUSE', match: NEW },
  { table: 'filter', from: 'OUTPUT', to: 'ORC-REFUSE', match: NEW },
  { table: 'filter', from: 'FORWARD', to: 'ORC-REFUSE', match: NEW },
  { table: 'filter', from: 'FORWARD', to: 'ORC-FORWARD', match: [] },
];

export const CHAIN_PREFIX = 'ORC-';

export interface Rules {
  readonly text: string;
  /** The service chains of the nat table. Chains that a later state lacks are deleted. */
  readonly chains: ReadonlySet<string>;
}

/** `stale` holds the existing chains of an earlier state, whichever process created them. */
export function serviceRules(
  ports: readonly ServicePort[],
  settings: RuleSettings,
  stale: ReadonlySet<string> = new Set(),
): Rules {
  const mark = `0x${(2 ** settings.masqueradeBit).toString(16)}`;
  const nat = new NatRules(settings.podCidrs);
  if (settings.nameServer !== undefined) nat.nameServer(settings.nameServer);
  for (const port of ports) nat.service(port);
  const gone = [...stale].filter((chain) => !nat.chains.has(chain) && !FIXED.includes(chain));
  const lines = [
    '*nat',
    ...[...FIXED, ...nat.chains, ...gone].map((chain) => `:${chain} - [0:0]`),
    `-A ORC-MASQUERADE -j MARK --or-mark ${mark}`,
    `-A ORC-POSTROUTING -m mark ! --mark ${mark}/${mark} -j RETURN`,
    // Removes the mark again, so that a packet that passes twice through a tunnel is masqueraded once.
    `-A ORC-POSTROUTING -j MARK --xor-mark ${mark}`,
    '-A ORC-POSTROUTING -j MASQUERADE --random-fully',
    ...nat.services,
    '-A ORC-SERVICES -m addrtype --dst-type LOCAL -j ORC-NODEPORTS',
    ...nat.nodePorts,
    ...nat.rules,
    ...gone.map((chain) => `-X ${chain}`),
    'COMMIT',
    '*filter',
    ':ORC-REFUSE - [0:0]',
    ':ORC-FORWARD - [0:0]',
    ...(settings.nameServer === undefined ? [] : onlyBy(settings.nameServer)),
    ...ports.flatMap((port) => refusals(port, settings.family)),
    `-A ORC-FORWARD -m mark --mark ${mark}/${mark} -j ACCEPT`,
    '-A ORC-FORWARD -m conntrack --ctstate DNAT -j ACCEPT',
    'COMMIT',
  ];
  return { text: `${lines.join('\n')}\n`, chains: nat.chains };
}

const FIXED: readonly string[] = ['ORC-SERVICES', 'ORC-NODEPORTS', 'ORC-POSTROUTING', 'ORC-MASQUERADE'];

class NatRules {
  readonly services: string[] = [];
  readonly nodePorts: string[] = [];
  readonly rules: string[] = [];
  readonly chains = new Set<string>();
  readonly #podCidrs: readonly string[];

  constructor(podCidrs: readonly string[]) {
    this.#podCidrs = podCidrs;
  }

  /**
   * Redirects to the address of the interface on which the query arrived. Conntrack recognizes a response from that
   * address.
   */
  nameServer({ addresses, port }: NameServer): void {
    for (const address of addresses)
      for (const protocol of ['udp', 'tcp'])
        this.services.push(
          `-A ORC-SERVICES -d ${address} -p ${protocol} -m ${protocol} --dport 53 -j REDIRECT --to-ports ${port}`,
        );
  }

  service(port: ServicePort): void {
    const protocol = port.protocol.toLowerCase();
    const to = (address: string): string => `-d ${address} -p ${protocol} -m ${protocol} --dport ${port.port}`;
    const note = comment(port);
    if (port.internal.length > 0) {
      const chain = this.#balance('SVC', port, port.internal);
      this.services.push(
        `-A ORC-SERVICES ${to(port.clusterIp)} ${note} -m addrtype --src-type LOCAL -j ORC-MASQUERADE`,
        `-A ORC-SERVICES ${to(port.clusterIp)} ${note} -j ${chain}`,
      );
    }
    if (port.external.length === 0 && !port.externalLocal) return;
    const outside = this.#outside(port);
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

  /** Adds the chain for traffic to node ports, external IPs and load balancer IPs. */
  #outside(port: ServicePort): string {
    const chain = chainName('EXT', port.id, port.protocol);
    this.chains.add(chain);
    if (!port.externalLocal) {
      const same = port.internal.map(hostPort).join() === port.external.map(hostPort).join();
      const all = this.#balance(same ? 'SVC' : 'SVX', port, port.external);
      this.rules.push(`-A ${chain} -j ORC-MASQUERADE`, `-A ${chain} -j ${all}`);
      return chain;
    }
    // Traffic from this host and its pods is internal, so the external traffic policy does not apply to it.
    if (port.internal.length > 0) {
      const inside = this.#balance('SVC', port, port.internal);
      for (const cidr of this.#podCidrs) this.rules.push(`-A ${chain} -s ${cidr} -j ${inside}`);
      this.rules.push(
        `-A ${chain} -m addrtype --src-type LOCAL -j ORC-MASQUERADE`,
        `-A ${chain} -m addrtype --src-type LOCAL -j ${inside}`,
      );
    }
    if (port.external.length > 0) this.rules.push(`-A ${chain} -j ${this.#balance('SVX', port, port.external)}`);
    return chain;
  }

  /**
   * Selects an endpoint at random with equal probability. With session affinity, the client's previous endpoint comes
   * first.
   */
  #balance(kind: 'SVC' | 'SVX', port: ServicePort, endpoints: readonly Endpoint[]): string {
    const chain = chainName(kind, port.id, port.protocol);
    if (this.chains.has(chain)) return chain;
    this.chains.add(chain);
    const targets = endpoints.map((endpoint) => this.#endpoint(port, endpoint));
    if (port.affinitySeconds > 0) {
      for (const target of targets)
        this.rules.push(
          `-A ${chain} -m recent --name ${target} --rcheck --seconds ${port.affinitySeconds} --reap -j ${target}`,
        );
    }
    targets.forEach((target, index) => {
      const left = targets.length - index;
      const chance = left === 1 ? '' : `-m statistic --mode random --probability ${(1 / left).toFixed(10)} `;
      this.rules.push(`-A ${chain} ${chance}-j ${target}`);
    });
    return chain;
  }

  #endpoint(port: ServicePort, endpoint: Endpoint): string {
    const address = hostPort(endpoint);
    const chain = chainName('SEP', port.id, port.protocol, address);
    if (this.chains.has(chain)) return chain;
    this.chains.add(chain);
    const protocol = port.protocol.toLowerCase();
    const remember = port.affinitySeconds > 0 ? `-m recent --name ${chain} --set ` : '';
    this.rules.push(
      `-A ${chain} -s ${endpoint.ip} -j ORC-MASQUERADE`,
      `-A ${chain} ${remember}-p ${protocol} -m ${protocol} -j DNAT --to-destination ${address}`,
    );
    return chain;
  }
}

/**
 * Drops queries to the name server's port that were not sent to its cluster address, so that it is not an open
 * resolver.
 */
function onlyBy({ port }: NameServer): string[] {
  return ['udp', 'tcp'].flatMap((protocol) => {
    const to = `-A ORC-REFUSE -p ${protocol} -m ${protocol} --dport ${port}`;
    return [`${to} -m conntrack --ctstate DNAT -j ACCEPT`, `${to} -m addrtype ! --src-type LOCAL -j DROP`];
  });
}

/**
 * Rejects traffic to a port without endpoints, so that the client fails at once. If only this node lacks endpoints,
 * drops the traffic instead, so that the load balancer tries another node.
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

const hostPort = ({ ip, port }: Endpoint): string => (ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`);

/** Names have no characters that end a quoted text; those of a kube-apiserver that allows more do not reach the rules. */
const comment = ({ id }: ServicePort): string =>
  `-m comment --comment "${id.replaceAll(/[^A-Za-z0-9./:_-]/g, '?').slice(0, 255)}"`;

/** The name of a chain has at most 28 characters. */
function chainName(kind: string, ...parts: readonly string[]): string {
  const hash = createHash('sha256').update(parts.join('\0')).digest('hex').slice(0, 16).toUpperCase();
  return `${CHAIN_PREFIX}${kind}-${hash}`;
}
