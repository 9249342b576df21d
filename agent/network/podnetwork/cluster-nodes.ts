/**
 * Decides which nodes of the cluster become peers of this node's pod network. Pure.
 *
 * A node object is written by its node, so a compromised node may claim ranges and addresses that are not its own. Each
 * claim is checked against those of this node and of other nodes. If two nodes claim the same address or key, it belongs to
 * the one whose claim the control plane recorded first (`controlplane/security/admission/node-claims.ts`), because requests
 * of that node came from the address. Without a record it belongs to the older node.
 */
import type { Node } from '../../../api/kinds/kinds.ts';
import {
  type Cidr,
  cidrContains,
  cidrCovers,
  formatCidr,
  formatIp,
  type Ip,
  isLinkLocalUnicast,
  isLoopback,
  isMulticast,
  isUnspecified,
  parseCidr,
  parseIp,
} from '../../../api/meta/ip-addresses.ts';
import { CLAIMS, WIREGUARD_PUBLIC_KEY } from '../../../api/meta/orchlet-annotations.ts';
import { quoteText } from '../../../api/meta/quote.ts';

/** `address:port`, where a node receives WireGuard packets. */
export const ENDPOINT = 'orchlet.local/wireguard-endpoint';

/** The part of a node object that the pod network depends on, as plain data. */
export interface ClusterNode {
  readonly name: string;
  readonly createdAt: string;
  readonly ranges: readonly string[];
  /** Addresses of type InternalIP. */
  readonly addresses: readonly string[];
  readonly publicKey: string;
  readonly endpoint: string;
  /** The annotation `CLAIMS`. Nodes that an agent of an earlier release has stored lack it. */
  readonly claims?: string;
}

/** A node whose claims are valid. Addresses and ranges are in their canonical form. */
export interface Peer {
  readonly name: string;
  readonly ranges: readonly Cidr[];
  /** Addresses of the node, at most one of each family. */
  readonly addresses: readonly Ip[];
  /** Empty if the node has published no valid key of its own. */
  readonly publicKey: string;
  readonly endpoint: string;
}

/** Why the pods of a node are not reachable, or not all of them. */
export interface Refusal {
  readonly node: string;
  readonly reason: string;
}

/** The ranges and addresses that this node knows to be its own, against which others are checked. */
export interface OwnClaims {
  readonly name: string;
  readonly ranges: readonly Cidr[];
  /** All addresses of this host. No range of another node may contain one of them. */
  readonly hostAddresses: readonly Ip[];
  /** The ranges of all pods of the cluster; empty if they are not known, which allows private ranges. */
  readonly clusterRanges: readonly Cidr[];
}

interface Peers {
  readonly peers: readonly Peer[];
  readonly refusals: readonly Refusal[];
}

/** Takes from a Node what other nodes need. Nothing is validated; `choosePeers` does that. */
export function clusterNode({ metadata, spec, status }: Node): ClusterNode {
  const annotations = metadata.annotations ?? {};
  return {
    name: metadata.name ?? '',
    createdAt: String(metadata.creationTimestamp ?? ''),
    ranges: spec?.podCIDRs ?? (spec?.podCIDR === undefined ? [] : [spec.podCIDR]),
    addresses: (status?.addresses ?? []).filter(({ type }) => type === 'InternalIP').map(({ address }) => address),
    publicKey: annotations[WIREGUARD_PUBLIC_KEY] ?? '',
    endpoint: annotations[ENDPOINT] ?? '',
    claims: annotations[CLAIMS] ?? '',
  };
}

/** Ranges without public addresses. Only these are accepted while the ranges of the cluster are not known. */
const PRIVATE = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10', 'fc00::/7'].flatMap(
  (text) => parseCidr(text) ?? [],
);
/** The most ranges that a node can have: one of each family. */
const MAX_RANGES = 2;

/** Returns the nodes that become peers, and the reason for each other node with pod ranges that does not. */
export function choosePeers(nodes: readonly ClusterNode[], ownClaims: OwnClaims): Peers {
  const taken: Claims = { ranges: [...ownClaims.ranges], addresses: [...ownClaims.hostAddresses] };
  const peers: Peer[] = [];
  const refusals: Refusal[] = [];
  const others = nodes.filter(({ name, ranges }) => name !== ownClaims.name && ranges.length > 0).sort(byAge);
  // Only the control plane of orchlet publishes the ranges. Other API servers let nodes write the record themselves.
  const holders = holdersOf(others, { isRecorded: ownClaims.clusterRanges.length > 0 });
  for (const node of others) {
    const checked = checkedPeer(node, taken, holders, ownClaims.clusterRanges);
    if (typeof checked === 'string') {
      refusals.push({ node: node.name, reason: checked });
      continue;
    }
    taken.ranges.push(...checked.ranges);
    taken.addresses.push(...checked.addresses);
    peers.push(checked);
  }
  return { peers, refusals };
}

interface Claims {
  readonly ranges: Cidr[];
  readonly addresses: Ip[];
}

function byAge(a: ClusterNode, b: ClusterNode): number {
  if (a.createdAt !== b.createdAt) return a.createdAt < b.createdAt ? -1 : 1;
  return a.name < b.name ? -1 : 1;
}

/** The name of the node that each claimed address and key belongs to. */
type Holders = ReadonlyMap<string, string>;

/**
 * Returns which node has each address and key, of those that claim it: the one with the oldest record, or else the first of
 * `nodes`, which are sorted by age. The first address of each family counts.
 */
function holdersOf(nodes: readonly ClusterNode[], { isRecorded }: { readonly isRecorded: boolean }): Holders {
  const found = new Map<string, { readonly name: string; readonly since: string }>();
  for (const node of nodes) {
    const record = isRecorded ? recordedClaims(node.claims ?? '') : NO_RECORD;
    const addresses = node.addresses.flatMap((text) => parseIp(text) ?? []);
    const used = [4, 6].flatMap((family) => addresses.find((address) => address.family === family) ?? []);
    for (const claim of [...used.map(formatIp), node.publicKey]) {
      const since = record.get(claim) ?? UNRECORDED;
      const holder = found.get(claim);
      if (holder === undefined || since < holder.since) found.set(claim, { name: node.name, since });
    }
  }
  return new Map([...found].map(([claim, { name }]) => [claim, name]));
}

/** Later than every time. */
const UNRECORDED = '~';
const NO_RECORD: ReadonlyMap<string, string> = new Map();

function recordedClaims(claims: string): ReadonlyMap<string, string> {
  const pairs = claims.split(',').map((pair) => pair.split(' '));
  return new Map(pairs.flatMap(([claim = '', since = '']) => (since === '' ? [] : [[claim, since] as const])));
}

/** Returns the peer, or the reason for which the node does not become one. */
function checkedPeer(
  node: ClusterNode,
  taken: Claims,
  holders: Holders,
  clusterRanges: readonly Cidr[],
): Peer | string {
  if (node.ranges.length > MAX_RANGES) return `it has ${node.ranges.length} pod ranges`;
  const ranges: Cidr[] = [];
  for (const text of node.ranges) {
    const range = parseCidr(text);
    const problem =
      range === undefined ? 'is not a range' : rangeProblem(range, [...taken.ranges, ...ranges], clusterRanges);
    if (range === undefined || problem !== '') return `its pod range ${quoteShort(text)} ${problem}`;
    const within = taken.addresses.find((address) => cidrContains(range, address));
    if (within !== undefined) return `its pod range ${quoteShort(text)} contains the node address ${formatIp(within)}`;
    ranges.push(range);
  }
  const addresses: Ip[] = [];
  for (const text of node.addresses) {
    const address = parseIp(text);
    if (address === undefined) return `its address ${quoteShort(text)} is not an address`;
    if (addresses.some(({ family }) => family === address.family)) continue;
    const isTaken = holders.get(formatIp(address)) !== node.name;
    const problem = isTaken ? OF_ANOTHER : addressProblem(address, taken, [...clusterRanges, ...ranges]);
    if (problem !== '') return `its address ${quoteShort(text)} ${problem}`;
    addresses.push(address);
  }
  if (addresses.length === 0) return 'it has no address of type InternalIP';
  return { name: node.name, ranges, addresses, ...keyOf(node, addresses, holders) };
}

function rangeProblem(range: Cidr, taken: readonly Cidr[], clusterRanges: readonly Cidr[]): string {
  const first: Ip = { family: range.family, value: range.base, mapped: false };
  if (isUnspecified(first) || isLoopback(first) || isLinkLocalUnicast(first) || isMulticast(first))
    return 'has addresses that are not for pods';
  const outer = clusterRanges.length === 0 ? PRIVATE : clusterRanges;
  if (!outer.some((whole) => cidrCovers(whole, range)))
    return clusterRanges.length === 0 ? 'has public addresses' : 'is not within the ranges of the cluster';
  const other = taken.find((one) => cidrCovers(one, range) || cidrCovers(range, one));
  return other === undefined ? '' : `overlaps ${formatCidr(other)} of another node`;
}

const OF_ANOTHER = 'is the address of another node';

function addressProblem(address: Ip, taken: Claims, ranges: readonly Cidr[]): string {
  if (isUnspecified(address) || isLoopback(address) || isLinkLocalUnicast(address) || isMulticast(address))
    return 'cannot be the address of a node';
  if (taken.addresses.some(({ family, value }) => family === address.family && value === address.value))
    return OF_ANOTHER;
  const range = [...taken.ranges, ...ranges].find((one) => cidrContains(one, address));
  return range === undefined ? '' : `lies in the pod range ${formatCidr(range)}`;
}

/** Returns the key and the endpoint of a node, or '' for both if one of them cannot be used. */
function keyOf(
  { name, publicKey, endpoint }: ClusterNode,
  addresses: readonly Ip[],
  holders: Holders,
): Pick<Peer, 'publicKey' | 'endpoint'> {
  const none = { publicKey: '', endpoint: '' };
  if (!isKey(publicKey) || holders.get(publicKey) !== name) return none;
  const [, host = '', port = ''] = /^\[?([0-9a-fA-F.:]+?)\]?:(\d{1,5})$/.exec(endpoint) ?? [];
  const address = parseIp(host);
  const isOwn = addresses.some(({ family, value }) => family === address?.family && value === address.value);
  if (address === undefined || !isOwn || Number(port) < 1 || Number(port) > 65_535) return none;
  return { publicKey, endpoint: endpointText(address, Number(port)) };
}

/** Formats an endpoint for `wg`; IPv6 addresses stand in brackets. */
export function endpointText(address: Ip, port: number): string {
  return address.family === 6 ? `[${formatIp(address)}]:${port}` : `${formatIp(address)}:${port}`;
}

/** Whether the text is a WireGuard key: 32 bytes in base64, of which the last character has two bits that are zero. */
const isKey = (text: string): boolean => /^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/.test(text);

/** Quotes and shortens a text of another node, which may be of any length and content. */
const quoteShort = (text: string): string => quoteText(text.slice(0, 60));
