/**
 * Builds the nftables table that protects the VXLAN link. Pure. VXLAN has no authentication: a host that reaches its port could
 * send packets to pods. The table drops packets that do not come from the address of a node. It also drops packets that this
 * host forwards to the port of another node, unless a node sent them: packets of pods would arrive there from the address of
 * this node.
 */
import { formatIp, type Ip } from '../../../api/meta/ip-addresses.ts';

export const GUARD_TABLE = 'orchlet_pod_network';

export function guardScript(port: number, peers: readonly Ip[]): string {
  const set = (family: 4 | 6): string => {
    const addresses = peers.filter((peer) => peer.family === family).map(formatIp);
    const elements = addresses.length === 0 ? '' : `    elements = { ${addresses.join(', ')} }\n`;
    return `  set peers${family} {\n    type ipv${family}_addr\n${elements}  }\n`;
  };
  return [
    `table inet ${GUARD_TABLE}`,
    `delete table inet ${GUARD_TABLE}`,
    `table inet ${GUARD_TABLE} {`,
    `${set(4)}${set(6)}  chain input {`,
    '    type filter hook input priority -5; policy accept;',
    `    udp dport ${port} ip saddr != @peers4 drop`,
    `    udp dport ${port} ip6 saddr != @peers6 drop`,
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
