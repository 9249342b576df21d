/**
 * Computes what the kernel of this node must have for the pod network: a link, its addresses, routes, neighbors, forwarding
 * entries and WireGuard peers. Pure.
 *
 * In the modes with a tunnel, a node has a tunnel address in each of its pod ranges, which is also the gateway of its pods.
 * The MAC address of a VXLAN link follows from the pod range, so that no node has to publish one.
 */
import { createHash } from 'node:crypto';
import { type Cidr, cidrAddress, cidrContains, formatCidr, formatIp, type Ip } from '../../../api/meta/ip-addresses.ts';
import type { Peer, Refusal } from './cluster-nodes.ts';

/** How packets reach other nodes: in one of two tunnels, or by plain routes of a flat network. */
export type NetworkMode = 'vxlan' | 'wireguard' | 'routes';

/** The name of the link of mode `vxlan`. */
export const VXLAN_LINK = 'orchlet.vxlan';
/** The name of the link of mode `wireguard`. */
export const WIREGUARD_LINK = 'orchlet.wg';
/** The link by which packets of the pods of other nodes arrive, by mode; empty if they arrive without a tunnel. */
export const TUNNELS: Readonly<Record<NetworkMode, string>> = {
  vxlan: VXLAN_LINK,
  wireguard: WIREGUARD_LINK,
  routes: '',
};
/** The prefix of the names of all links of the pod network. */
export const LINK_PREFIX = 'orchlet.';
/** The number of the routing protocol (`ip route … proto`), by which the agent recognizes its routes. */
export const ROUTE_PROTOCOL = 111;
/** The VXLAN network identifier (VNI) of the link, the same on all nodes. */
const VXLAN_ID = 7842;
/** The default UDP ports of VXLAN in Linux, and of WireGuard. */
export const DEFAULT_PORTS = { vxlan: 8472, wireguard: 51_820 } as const;

/** The bytes that encapsulation adds to a packet, by the family of the node addresses. */
const OVERHEAD = { vxlan: { 4: 50, 6: 70 }, wireguard: { 4: 60, 6: 80 }, routes: { 4: 0, 6: 0 } } as const;

/** The interface that has the address of this node. */
export interface Uplink {
  readonly name: string;
  readonly mtu: number;
  readonly address: Ip;
  /** The networks that it reaches without a router. */
  readonly networks: readonly Cidr[];
}

/** A VXLAN link. `local` and `device` are address and interface of the node, `id` the VNI. */
export interface VxlanLink {
  readonly kind: 'vxlan';
  readonly name: string;
  readonly mtu: number;
  readonly id: number;
  readonly port: number;
  readonly local: string;
  readonly device: string;
  readonly mac: string;
}

/** A WireGuard link, whose peers are listed separately. */
export interface WireguardLink {
  readonly kind: 'wireguard';
  readonly name: string;
  readonly mtu: number;
  readonly port: number;
  /** The node's own keys. */
  readonly keys: WireguardKeys;
}

/** The keys of a node. The public one is base64 of 32 bytes. */
export interface WireguardKeys {
  readonly publicKey: string;
  /** The file with the private key, which no process gets as an argument. */
  readonly privateKeyFile: string;
}

/** A route of the main table. Destination and gateway have one family. */
export interface Route {
  readonly destination: string;
  readonly device: string;
  /** Empty: the device reaches the destination itself. */
  readonly gateway: string;
  /** Whether the gateway is reached over the device, whatever its addresses are. */
  readonly onlink: boolean;
  /** The source address of packets of this host; empty: the kernel chooses. */
  readonly source: string;
}

/** A permanent entry of the neighbor table of the VXLAN link: the MAC address for a tunnel address. */
export interface Neighbor {
  readonly address: string;
  readonly mac: string;
}

/** A permanent entry of the forwarding table of the VXLAN link: the node behind a MAC address. */
export interface ForwardingEntry {
  readonly mac: string;
  readonly destination: string;
}

/** A peer of the WireGuard link. Packets from other sources than `allowedIps` are dropped by the kernel. */
export interface WireguardPeer {
  readonly publicKey: string;
  readonly endpoint: string;
  readonly allowedIps: readonly string[];
}

/** The complete state of the kernel that the agent owns. */
export interface DesiredNetwork {
  readonly link: VxlanLink | WireguardLink | undefined;
  /** The addresses with their prefix lengths. */
  readonly addresses: readonly string[];
  readonly routes: readonly Route[];
  readonly neighbors: readonly Neighbor[];
  readonly forwarding: readonly ForwardingEntry[];
  readonly wireguardPeers: readonly WireguardPeer[];
}

/** The state after removal. */
export const NO_NETWORK: DesiredNetwork = {
  link: undefined,
  addresses: [],
  routes: [],
  neighbors: [],
  forwarding: [],
  wireguardPeers: [],
};

/** The facts from which the desired state follows. */
export interface NetworkInputs {
  readonly mode: NetworkMode;
  readonly port: number;
  readonly ranges: readonly Cidr[];
  readonly uplink: Uplink;
  readonly peers: readonly Peer[];
  /** Present in mode `wireguard`. */
  readonly keys?: WireguardKeys | undefined;
}

/** Returns the MTU of pods in bytes: that of the node's interface without what an encapsulated packet adds. */
export function podMtu(mode: NetworkMode, uplink: Pick<Uplink, 'mtu' | 'address'>): number {
  return uplink.mtu - OVERHEAD[mode][uplink.address.family];
}

/** Returns the address by which a node takes part in the network of the pods of its range. */
const tunnelAddress = (range: Cidr): string => cidrAddress(range, 1);

const hostPrefix = (range: Cidr): string => `${tunnelAddress(range)}/${range.family === 4 ? 32 : 128}`;

/**
 * Computes the network that the kernel must have, and the nodes that are refused with the reasons. Without peers it has no
 * link, so that a single host stays as it is.
 */
export function desiredNetwork(inputs: NetworkInputs): {
  readonly network: DesiredNetwork;
  readonly refusals: readonly Refusal[];
} {
  const refusals: Refusal[] = [];
  const { mode } = inputs;
  const network =
    mode === 'vxlan'
      ? vxlan(inputs, refusals)
      : mode === 'wireguard'
        ? wireguard(inputs, refusals)
        : routed(inputs, refusals);
  return { network, refusals };
}

/**
 * Returns the MAC address of a node's VXLAN link: a locally administered unicast address, from a hash of its first pod range.
 */
export function tunnelMac(ranges: readonly Cidr[]): string {
  const [first] = ranges;
  const digest = createHash('sha256')
    .update(first === undefined ? '' : formatCidr(first))
    .digest();
  return ['02', ...[...digest.subarray(0, 5)].map((byte) => byte.toString(16).padStart(2, '0'))].join(':');
}

const addressFor = (peer: Peer, uplink: Uplink): Ip | undefined =>
  peer.addresses.find(({ family }) => family === uplink.address.family);

function vxlan({ port, ranges, uplink, peers }: NetworkInputs, refusals: Refusal[]): DesiredNetwork {
  if (peers.length === 0) return NO_NETWORK;
  const mac = tunnelMac(ranges);
  const macs = new Set([mac]);
  const neighbors: Neighbor[] = [];
  const forwarding: ForwardingEntry[] = [];
  const routes: Route[] = [];
  for (const peer of peers) {
    const address = addressFor(peer, uplink);
    const peerMac = tunnelMac(peer.ranges);
    if (address === undefined) refusals.push(otherFamily(peer, uplink));
    else if (macs.has(peerMac))
      refusals.push({ node: peer.name, reason: 'the MAC address of its pod range is that of another node' });
    else {
      macs.add(peerMac);
      forwarding.push({ mac: peerMac, destination: formatIp(address) });
      for (const range of reachableRanges(peer, ranges)) {
        neighbors.push({ address: tunnelAddress(range), mac: peerMac });
        const gateway = tunnelAddress(range);
        routes.push({
          ...{ destination: formatCidr(range), device: VXLAN_LINK, gateway, onlink: true },
          source: sourceFor(range, ranges),
        });
      }
    }
  }
  return {
    link: {
      ...{ kind: 'vxlan', name: VXLAN_LINK, id: VXLAN_ID, port, mac },
      ...{ mtu: podMtu('vxlan', uplink), local: formatIp(uplink.address), device: uplink.name },
    },
    addresses: ranges.map(hostPrefix),
    ...{ routes, neighbors, forwarding, wireguardPeers: [] },
  };
}

function wireguard({ port, ranges, uplink, peers, keys }: NetworkInputs, refusals: Refusal[]): DesiredNetwork {
  if (peers.length === 0 || keys === undefined) return NO_NETWORK;
  const usedKeys = new Set([keys.publicKey]);
  const wireguardPeers: WireguardPeer[] = [];
  const routes: Route[] = [];
  for (const peer of peers) {
    const reason =
      addressFor(peer, uplink) === undefined
        ? otherFamily(peer, uplink).reason
        : peer.publicKey === ''
          ? 'it has published no valid WireGuard key and endpoint yet'
          : usedKeys.has(peer.publicKey)
            ? 'its WireGuard key is that of another node'
            : '';
    if (reason !== '') {
      refusals.push({ node: peer.name, reason });
      continue;
    }
    usedKeys.add(peer.publicKey);
    const reached = reachableRanges(peer, ranges);
    wireguardPeers.push({ publicKey: peer.publicKey, endpoint: peer.endpoint, allowedIps: reached.map(formatCidr) });
    for (const range of reached)
      routes.push({
        ...{ destination: formatCidr(range), device: WIREGUARD_LINK, gateway: '', onlink: false },
        source: sourceFor(range, ranges),
      });
  }
  return {
    link: { kind: 'wireguard', name: WIREGUARD_LINK, port, keys, mtu: podMtu('wireguard', uplink) },
    addresses: ranges.map(hostPrefix),
    ...{ routes, neighbors: [], forwarding: [], wireguardPeers },
  };
}

function routed({ ranges, uplink, peers }: NetworkInputs, refusals: Refusal[]): DesiredNetwork {
  const routes: Route[] = [];
  for (const peer of peers) {
    for (const range of reachableRanges(peer, ranges)) {
      const gateway = peer.addresses.find(({ family }) => family === range.family);
      if (gateway === undefined)
        refusals.push({
          node: peer.name,
          reason: `it has no IPv${range.family} address as the gateway of ${formatCidr(range)}`,
        });
      else if (!uplink.networks.some((network) => cidrContains(network, gateway)))
        refusals.push({
          node: peer.name,
          reason: `its address ${formatIp(gateway)} is not on the network of ${uplink.name}, so that routes cannot reach it`,
        });
      else
        routes.push({
          ...{
            destination: formatCidr(range),
            device: uplink.name,
            gateway: formatIp(gateway),
            onlink: false,
            source: '',
          },
        });
    }
  }
  return { ...NO_NETWORK, routes };
}

/** Returns the ranges of a peer in the families that this node's pods have. */
const reachableRanges = (peer: Peer, ownRanges: readonly Cidr[]): readonly Cidr[] =>
  peer.ranges.filter(({ family }) => ownRanges.some((range) => range.family === family));

function sourceFor(range: Cidr, ownRanges: readonly Cidr[]): string {
  const same = ownRanges.find(({ family }) => family === range.family);
  return same === undefined ? '' : tunnelAddress(same);
}

const otherFamily = (peer: Peer, { address: { family } }: Uplink): Refusal => ({
  node: peer.name,
  reason: `it has no IPv${family} address, which this node uses between nodes`,
});
