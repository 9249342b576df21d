/**
 * Builds the netfilter rules of the pod network, as input of `iptables-restore --noflush`. Pure.
 *
 * Packets between pods keep their addresses, everything else that pods send is masqueraded, except multicast. The rules are
 * in chains of our own; the built-in chains only get the jumps of `jumps`.
 */
import { type Cidr, cidrSize, formatCidr } from '../../../api/meta/ip-addresses.ts';

/** The prefix of all chains. It differs from that of the service proxy, which removes chains of its own prefix. */
const CHAIN_PREFIX = 'ORCHLET-POD';
const BETWEEN = `${CHAIN_PREFIX}-NET`;
const OUTWARD = `${CHAIN_PREFIX}-OUT`;
const MASQUERADE = `${CHAIN_PREFIX}-NAT`;
const DIRECT = `${CHAIN_PREFIX}-RAW`;

/** The inputs of one address family. */
export interface RuleInputs {
  readonly family: 4 | 6;
  /** The range of this node's pods. */
  readonly range: Cidr;
  /** The ranges of all peers. */
  readonly peerRanges: readonly Cidr[];
  /** The bridge of pods whose network has no rules of a container runtime; empty with Docker, which has its own rules. */
  readonly bridge: string;
  /** The link by which packets of other nodes' pods arrive; empty in mode `routes`. */
  readonly tunnel: string;
  /** The interface with the address of this node; empty if it is not known. */
  readonly uplink: string;
  /** The value of `--iptables-masquerade-bit`. */
  readonly masqueradeBit: number;
}

/** A jump from a built-in chain to one of our own, at the beginning of the chain or at its end. */
export interface Jump {
  readonly table: 'raw' | 'nat' | 'filter';
  readonly from: string;
  readonly to: string;
  readonly isLast: boolean;
}

/**
 * Returns the jumps from the built-in chains to those of the pod network. Without a bridge, the pods are in Docker, which
 * drops packets from other hosts to containers in the raw table. The chain `DIRECT` accepts those of the cluster before.
 */
export function jumps({ bridge }: Pick<RuleInputs, 'bridge'>): readonly Jump[] {
  return [
    { table: 'nat', from: 'POSTROUTING', to: MASQUERADE, isLast: false },
    { table: 'filter', from: 'FORWARD', to: BETWEEN, isLast: false },
    bridge === ''
      ? { table: 'raw', from: 'PREROUTING', to: DIRECT, isLast: false }
      : { table: 'filter', from: 'FORWARD', to: OUTWARD, isLast: true },
  ];
}

/** Returns the text that replaces all chains of our own. */
export function packetRules(inputs: RuleInputs): string {
  const { family, range, peerRanges, bridge, masqueradeBit } = inputs;
  const ownRange = formatCidr(range);
  const cluster = mergedRanges([range, ...peerRanges]).map(formatCidr);
  const mark = `0x${(2 ** masqueradeBit).toString(16)}`;
  const raw = [
    '*raw',
    `:${DIRECT} - [0:0]`,
    ...cluster.map((from) => `-A ${DIRECT} -s ${from} -d ${ownRange} -j ACCEPT`),
    'COMMIT',
  ];
  const outward = [
    `:${OUTWARD} - [0:0]`,
    `-A ${OUTWARD} -i ${bridge} -s ${ownRange} -j ACCEPT`,
    `-A ${OUTWARD} -o ${bridge} -d ${ownRange} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
  ];
  return `${[
    ...(bridge === '' ? raw : []),
    '*nat',
    `:${MASQUERADE} - [0:0]`,
    // The service proxy masquerades packets with its mark.
    `-A ${MASQUERADE} -m mark --mark ${mark}/${mark} -j RETURN`,
    ...cluster.map((to) => `-A ${MASQUERADE} -s ${ownRange} -d ${to} -j ACCEPT`),
    `-A ${MASQUERADE} -s ${ownRange} ! -d ${family === 4 ? '224.0.0.0/4' : 'ff00::/8'} -j MASQUERADE --random-fully`,
    'COMMIT',
    '*filter',
    `:${BETWEEN} - [0:0]`,
    ...spoofed(inputs),
    ...cluster.flatMap((other) => [
      `-A ${BETWEEN} -s ${ownRange} -d ${other} -j ACCEPT`,
      `-A ${BETWEEN} -s ${other} -d ${ownRange} -j ACCEPT`,
    ]),
    ...(bridge === '' ? [] : outward),
    'COMMIT',
  ].join('\n')}\n`;
}

/**
 * Returns the rules that drop packets with forged addresses of pods. A sender that reaches this host could otherwise pass
 * its firewall and network policies, as the reverse path filter of the kernel is off on many hosts. Pods may forge their
 * source too (`NET_RAW`): with a tunnel, packets with the address of another node's pod that do not come from the tunnel
 * are not forwarded.
 */
function spoofed({ range, peerRanges, tunnel, uplink }: RuleInputs): string[] {
  const ownRange = formatCidr(range);
  const others = tunnel === '' ? [] : mergedRanges(peerRanges).map(formatCidr);
  return [
    ...others.map((from) => `-A ${BETWEEN} ! -i ${tunnel} -s ${from} -j DROP`),
    ...(uplink === '' ? [] : [`-A ${BETWEEN} -i ${uplink} -s ${ownRange} -d ${ownRange} -j DROP`]),
  ];
}

/** Joins adjacent ranges, so that many nodes need few rules. */
export function mergedRanges(ranges: readonly Cidr[]): Cidr[] {
  const sorted = ranges.toSorted((a, b) =>
    a.base < b.base ? -1 : a.base > b.base ? 1 : a.prefixLength - b.prefixLength,
  );
  const merged: Cidr[] = [];
  for (const range of sorted) {
    const last = merged.at(-1);
    if (last !== undefined && range.base < last.base + cidrSize(last)) continue;
    merged.push(range);
    for (
      let pair = joined(merged.at(-2), merged.at(-1));
      pair !== undefined;
      pair = joined(merged.at(-2), merged.at(-1))
    )
      merged.splice(-2, 2, pair);
  }
  return merged;
}

function joined(a: Cidr | undefined, b: Cidr | undefined): Cidr | undefined {
  if (a === undefined || b === undefined || a.prefixLength !== b.prefixLength || a.prefixLength === 0) return undefined;
  const size = cidrSize(a);
  if (b.base !== a.base + size || a.base % (2n * size) !== 0n) return undefined;
  return { ...a, prefixLength: a.prefixLength - 1 };
}
