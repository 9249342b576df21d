/**
 * Builds the nftables table that binds the interfaces of pods to the addresses that they were given. Pure. A pod with
 * `NET_RAW` or `NET_ADMIN` could otherwise send from the address of another pod of its node, or answer for it (ARP,
 * neighbor discovery), and network policies would judge it as that pod.
 *
 * Each rule applies to ports that the script lists by their indexes, which the kernel does not use again: another agent of
 * this network namespace may have pods with the same addresses at its own bridge, and a table that a killed agent has left
 * concerns no port that came later.
 */
import type { Nftables } from '../nftables.ts';
import { formatIp, type Ip, isLinkLocalUnicast, parseIp } from '../../../api/meta/ip-addresses.ts';
import { quoteText } from '../../../api/meta/quote.ts';

/** The interface of a pod, as the host sees it. */
export interface PodInterface {
  /** The name and the index of the port of the bridge. */
  readonly port: string;
  readonly index: number;
  readonly mac: string;
  /** The addresses in canonical form, link-local ones included. */
  readonly addresses: readonly string[];
}

/** The priority of the chain: before the filter chains of bridges and br_netfilter. */
const PRIORITY = -300;
const PLAIN_MAC = /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/;

/**
 * Returns the script that replaces the table. `unbound` are the indexes of further ports of the same bridges, for example of
 * pods that ran before pods were bound: they may use all addresses that no pod is bound to. Throws if a MAC address is
 * malformed.
 */
export function addressScript(table: string, interfaces: readonly PodInterface[], unbound: readonly number[]): string {
  const removal = `add table bridge ${table}\ndelete table bridge ${table}\n`;
  if (interfaces.length === 0) return removal;
  const malformed = interfaces.find(({ mac }) => !PLAIN_MAC.test(mac));
  if (malformed !== undefined)
    throw new Error(`the pod at the port ${malformed.port} has a malformed MAC address: ${quoteText(malformed.mac)}`);
  const verdicts = [
    ...interfaces.map(({ index }) => `${index} : goto port_${index}`),
    ...unbound.map((index) => `${index} : goto unbound`),
  ];
  return `${removal}${[
    `table bridge ${table} {`,
    ...interfaces.flatMap(portChain),
    ...unboundChain(interfaces),
    '  chain prerouting {',
    `    type filter hook prerouting priority ${PRIORITY}; policy accept;`,
    `    iif vmap { ${verdicts.join(', ')} }`,
    '  }',
    '}',
    '',
  ].join('\n')}`;
}

function unboundChain(interfaces: readonly PodInterface[]): string[] {
  const all = interfaces.flatMap(({ addresses }) => addresses.flatMap((text) => parseIp(text) ?? []));
  const bound = (family: 4 | 6): string[] =>
    textsOf(
      all.filter((ip) => !isLinkLocalUnicast(ip)),
      family,
    );
  return [
    '  chain unbound {',
    ...unlessEmpty(bound(4), (list) => [`ip saddr { ${list} } drop`, `arp saddr ip { ${list} } drop`]),
    ...unlessEmpty(bound(6), (list) => [`ip6 saddr { ${list} } drop`]),
    '  }',
  ];
}

/** What a host sends from `::`: duplicate address detection (RFC 4862), router solicitations and multicast listener reports. */
const FROM_UNSPECIFIED =
  'nd-neighbor-solicit, nd-router-solicit, mld-listener-report, mld-listener-done, mld2-listener-report';

/**
 * Returns the rules of one port. They accept no protocols but ARP, IPv4 and IPv6: a frame with a VLAN tag could carry any
 * address to the host.
 */
function portChain({ index, mac, addresses }: PodInterface): string[] {
  const podIps = addresses.flatMap((text) => parseIp(text) ?? []);
  const [ipv4, ipv6] = [textsOf(podIps, 4), textsOf(podIps, 6)];
  const targets = podIps.filter(({ family }) => family === 6).map(({ value }) => `0x${value.toString(16)}`);
  return [
    `  chain port_${index} {`,
    `    ether saddr != ${mac} drop`,
    `    arp saddr ether != ${mac} drop`,
    // 0.0.0.0 is the sender of an ARP probe (RFC 5227), which asks whether an address is in use.
    `    arp saddr ip != { ${['0.0.0.0', ...ipv4].join(', ')} } drop`,
    ...(ipv4.length === 0 ? ['    ether type ip drop'] : [`    ip saddr != { ${ipv4.join(', ')} } drop`]),
    '    icmpv6 type { nd-router-advert, nd-redirect } drop',
    // The 128 bits are the target of the neighbor advertisement. Older releases of nft have no name for it.
    `    icmpv6 type nd-neighbor-advert ${targets.length === 0 ? '' : `@th,64,128 != { ${targets.join(', ')} } `}drop`,
    `    ip6 saddr :: icmpv6 type { ${FROM_UNSPECIFIED} } accept`,
    ipv6.length === 0 ? '    ether type ip6 drop' : `    ip6 saddr != { ${ipv6.join(', ')} } drop`,
    '    ether type { arp, ip, ip6 } accept',
    '    drop',
    '  }',
  ];
}

const textsOf = (ips: readonly Ip[], wanted: 4 | 6): string[] => [
  ...new Set(ips.filter(({ family }) => family === wanted).map(formatIp)),
];

function unlessEmpty(list: readonly string[], lines: (joined: string) => readonly string[]): string[] {
  return list.length === 0 ? [] : lines(list.join(', ')).map((line) => `    ${line}`);
}

/** Returns why this host cannot have such a table; empty if it can. */
export function addressRulesProblem(nft: Pick<Nftables, 'problem'>, table: string): Promise<string> {
  return nft.problem(trialScript(`${table}_trial`));
}

/** Returns the script of a table that has every expression which the rules of pods use. */
export function trialScript(table: string): string {
  const addresses = ['192.0.2.1', '2001:db8::1'];
  return addressScript(table, [{ port: 'trial', index: 1, mac: '02:00:00:00:00:01', addresses }], [2]);
}
