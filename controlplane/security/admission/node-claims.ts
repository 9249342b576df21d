/**
 * Records the time since when a node has each address from which its requests come, and since when it publishes its public key
 * of WireGuard, unless another node published the key before. A node writes its status itself and may claim the address of
 * another node. If two nodes claim the same, agents believe the one whose record is older
 * (`agent/network/podnetwork/cluster-nodes.ts`).
 *
 * The record is an annotation of the Node. What the node itself writes there is replaced.
 */
import { formatMicroTime } from '../../../api/machinery/clock.ts';
import type { Node } from '../../../api/kinds/kinds.ts';
import { nodes } from '../../../api/client/resources.ts';
import { canonicalIp, isLoopback, parseIp } from '../../../api/meta/ip-addresses.ts';
import { quoteText } from '../../../api/meta/quote.ts';
import type { Listers } from '../../model/listers.ts';
import type { AdmissionAttributes } from './admission.ts';
import { refusal } from './pod-attributes.ts';
import { CLAIMS, WIREGUARD_PUBLIC_KEY } from '../../../api/meta/orchlet-annotations.ts';

/** The maximum number of recorded addresses of a node. */
const MAX_ADDRESSES = 64;

/** What the records are computed from, apart from the nodes themselves. */
export interface NodeClaimsOptions {
  /** Returns the time in milliseconds since 1970. */
  readonly now: () => number;
  /** The addresses of this host. Requests of a node on this host come from any of them. */
  readonly hostAddresses: () => readonly string[];
  /** Whether a controller assigns the pod ranges of nodes, so that no node may choose its own. */
  readonly assignsRanges: boolean;
}

/**
 * Changes the annotations of the Node in the attributes; `node` is the name of the client's own Node. Throws a 403 if the node
 * sets pod ranges that a controller assigns.
 */
export type NodeClaims = (attributes: AdmissionAttributes, node: string) => void;

/** Returns the function that changes the annotations. */
export function nodeClaims(listers: Listers, { now, hostAddresses, assignsRanges }: NodeClaimsOptions): NodeClaims {
  const lister = listers.of(nodes);
  const isOfAnother = (key: string, name: string): boolean =>
    (lister.list() as Node[]).some(
      ({ metadata }) => metadata.name !== name && metadata.annotations?.[WIREGUARD_PUBLIC_KEY] === key,
    );
  return (attributes, name) => {
    const node = attributes.object as Node | undefined;
    if (node === undefined) return;
    const old = attributes.oldObject as Node | undefined;
    if (assignsRanges && rangesOf(node) !== rangesOf(old))
      throw refusal(attributes, `node ${quoteText(name)} is not allowed to set its pod ranges`);
    const recordedTimes = parseClaims(old?.metadata.annotations?.[CLAIMS]);
    const claims = [
      ...provenAddresses(node, recordedTimes, originOf(attributes.remoteAddress ?? '', hostAddresses)),
      ...publishedKeys(node).filter((key) => recordedTimes.has(key) || !isOfAnother(key, name)),
    ];
    const time = formatMicroTime(now());
    setClaims(node, claims.map((claim) => `${claim} ${recordedTimes.get(claim) ?? time}`).join(','));
  };
}

function rangesOf(node: Node | undefined): string {
  const { podCIDR, podCIDRs } = node?.spec ?? {};
  return (podCIDRs ?? (podCIDR === undefined ? [] : [podCIDR])).join();
}

/** Returns the recorded times by claim: an address or a key. */
function parseClaims(text: string | undefined): ReadonlyMap<string, string> {
  const pairs = (text ?? '').split(',').map((pair) => pair.split(' '));
  return new Map(pairs.flatMap(([claim = '', time = '']) => (time === '' ? [] : [[claim, time] as const])));
}

/**
 * Returns the addresses that belong to the client: the other end of its connection, or the addresses of this host if that is a
 * loopback address. Empty for a text that is no address.
 */
function originOf(remote: string, hostAddresses: () => readonly string[]): readonly string[] {
  const address = canonicalIp(remote.replace(/^::ffff:(?=\d+\.)/i, ''));
  const ip = address === undefined ? undefined : parseIp(address);
  if (address === undefined || ip === undefined) return [];
  return isLoopback(ip) ? hostAddresses().flatMap((text) => canonicalIp(text) ?? []) : [address];
}

/**
 * Returns the addresses of the node that belong to the client. An address of the other family, about which the request proves
 * nothing, is included if it is recorded already.
 */
function provenAddresses(
  { status }: Node,
  recordedTimes: ReadonlyMap<string, string>,
  origin: readonly string[],
): readonly string[] {
  const isV6 = (address: string): boolean => address.includes(':');
  const addresses = (status?.addresses ?? [])
    .slice(0, MAX_ADDRESSES)
    .flatMap(({ type, address }) => (type === 'InternalIP' ? (canonicalIp(address) ?? []) : []));
  return [...new Set(addresses)].filter((address) =>
    origin.some((from) => isV6(from) === isV6(address)) ? origin.includes(address) : recordedTimes.has(address),
  );
}

function publishedKeys({ metadata }: Node): readonly string[] {
  const key = metadata.annotations?.[WIREGUARD_PUBLIC_KEY] ?? '';
  return /^[A-Za-z0-9+/]{43}=$/.test(key) ? [key] : [];
}

function setClaims({ metadata }: Node, claims: string): void {
  const { [CLAIMS]: _written, ...others } = metadata.annotations ?? {};
  const annotations = claims === '' ? others : { ...others, [CLAIMS]: claims };
  if (Object.keys(annotations).length > 0 || metadata.annotations !== undefined) metadata.annotations = annotations;
}
