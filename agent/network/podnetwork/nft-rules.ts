/**
 * Builds the rules of the pod network for a host without iptables. They masquerade and drop as those of `packet-rules.ts`
 * do. Pure.
 */
import { formatCidr } from '../../../api/meta/ip-addresses.ts';
import { mergedRanges, type RuleInputs } from './packet-rules.ts';

/** The table of these rules, which the agent owns as a whole. */
export const NAT_TABLE = 'orchlet_pod_nat';

const SYNTAX = { 4: { match: 'ip', multicast: '224.0.0.0/4' }, 6: { match: 'ip6', multicast: 'ff00::/8' } } as const;

type NftInputs = Pick<RuleInputs, 'family' | 'range' | 'peerRanges' | 'tunnel' | 'uplink'>;

/** Returns the script that replaces the table of these rules. `families` has the inputs of each address family of the pods. */
export function natScript(families: readonly NftInputs[]): string {
  return [
    `table inet ${NAT_TABLE}`,
    `delete table inet ${NAT_TABLE}`,
    `table inet ${NAT_TABLE} {`,
    '  chain postrouting {',
    '    type nat hook postrouting priority srcnat; policy accept;',
    ...families.map(masquerade),
    '  }',
    '  chain forward {',
    '    type filter hook forward priority filter; policy accept;',
    ...families.flatMap(spoofed),
    '  }',
    '}',
    '',
  ].join('\n');
}

function masquerade({ family, range, peerRanges }: NftInputs): string {
  const { match, multicast } = SYNTAX[family];
  const inside = [...mergedRanges([range, ...peerRanges]).map(formatCidr), multicast].join(', ');
  return `    ${match} saddr ${formatCidr(range)} ${match} daddr != { ${inside} } masquerade fully-random`;
}

function spoofed({ family, range, peerRanges, tunnel, uplink }: NftInputs): string[] {
  const { match } = SYNTAX[family];
  const podRange = formatCidr(range);
  const others = mergedRanges(peerRanges).map(formatCidr).join(', ');
  return [
    ...(tunnel === '' || others === '' ? [] : [`    iifname != "${tunnel}" ${match} saddr { ${others} } drop`]),
    ...(uplink === '' ? [] : [`    iifname "${uplink}" ${match} saddr ${podRange} ${match} daddr ${podRange} drop`]),
  ];
}
