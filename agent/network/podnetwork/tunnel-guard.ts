/**
 * Builds the nftables table that protects the VXLAN link. Pure. VXLAN has no authentication: a host that reaches its port could
 * send packets to pods. The table drops packets that do not come from the address of a node, and those in which a node sends
 * the address of a pod of another node: a compromised node could otherwise pass for every pod of the cluster. It also drops
 * packets that this host forwards to the port of another node, unless a node sent them: packets of pods would arrive there from
 * the address of this node.
 */
import { type Cidr, formatIp, type Ip } from '../../../api/meta/ip-addresses.ts';
import type { Peer } from './cluster-nodes.ts';

/** The nftables table that the guard owns as a whole. */
export const GUARD_TABLE = 'orchlet_pod_network';

type GuardedPeer = Pick<Peer, 'addresses' | 'ranges'>;

/** Returns the script for `nft -f` that replaces the table in one transaction. */
export function guardScript(port: number, peers: readonly GuardedPeer[]): string {
  const list = (name: string, type: string, elements: readonly string[]): string =>
    `  ${name} {\n    type ${type}\n${elements.length === 0 ? '' : `    elements = { ${elements.join(', ')} }\n`}  }\n`;
  const addresses = peers.flatMap((peer, index) => peer.addresses.map((ip) => ({ ip, index })));
  const set = (family: 4 | 6): string => {
    const ofFamily = addresses.filter(({ ip }) => ip.family === family);
    const type = `ipv${family}_addr`;
    const chains = ofFamily.map(({ ip, index }) => `${formatIp(ip)} : goto peer_${index}`);
    return [
      list(
        `set peers${family}`,
        type,
        ofFamily.map(({ ip }) => formatIp(ip)),
      ),
      list(`map inner${family}`, `${type} : verdict`, chains),
    ].join('');
  };
  return [
    `table inet ${GUARD_TABLE}`,
    `delete table inet ${GUARD_TABLE}`,
    `table inet ${GUARD_TABLE} {`,
    ...peers.map(innerSources),
    `${set(4)}${set(6)}  chain input {`,
    '    type filter hook input priority -5; policy accept;',
    `    udp dport ${port} ip saddr != @peers4 drop`,
    `    udp dport ${port} ip6 saddr != @peers6 drop`,
    `    udp dport ${port} ip saddr vmap @inner4`,
    `    udp dport ${port} ip6 saddr vmap @inner6`,
    '  }',
    '  chain forward {',
    '    type filter hook forward priority -5; policy accept;',
    `    udp dport ${port} ip daddr @peers4 ip saddr != @peers4 drop`,
    `    udp dport ${port} ip6 daddr @peers6 ip6 saddr != @peers6 drop`,
    '  }',
    '}',
    '',
  ].join('\n');
}

/**
 * Where the encapsulated packet has its parts, in bits from the start of the UDP header: the headers of UDP, VXLAN and
 * Ethernet have 8, 8 and 14 bytes (RFC 7348, section 5), and the source is at byte 12 of IPv4 and at byte 8 of IPv6.
 */
const ETHER_TYPE_AT = (8 + 8 + 12) * 8;
const INNER = {
  4: { etherType: '0x0800', sourceAt: (8 + 8 + 14 + 12) * 8, bits: 32 },
  6: { etherType: '0x86dd', sourceAt: (8 + 8 + 14 + 8) * 8, bits: 128 },
} as const;

/**
 * Returns the chain that accepts from a node only the addresses of its pods and its own ones. Frames of other protocols are
 * dropped, because nodes do not need them.
 */
function innerSources({ addresses, ranges }: GuardedPeer, index: number): string {
  const whole = ({ family, value }: Ip): Pick<Cidr, 'family' | 'base' | 'prefixLength'> => ({
    ...{ family, base: value, prefixLength: INNER[family].bits },
  });
  const lines = [...ranges, ...addresses.map(whole)].map(({ family, base, prefixLength }) => {
    const { etherType, sourceAt, bits } = INNER[family];
    const prefix = `0x${(base >> BigInt(bits - prefixLength)).toString(16)}`;
    return `    @th,${ETHER_TYPE_AT},16 ${etherType} @th,${sourceAt},${prefixLength} ${prefix} accept`;
  });
  return [`  chain peer_${index} {`, ...lines, '    drop', '  }'].join('\n');
}
