/**
 * Compares what the kernel has with what it must have, and returns the commands that make up the difference. Pure. No
 * command touches what is already as desired, so that packets flow on while other nodes come and go.
 */
import {
  type DesiredNetwork,
  type ForwardingEntry,
  LINK_PREFIX,
  type Neighbor,
  type Route,
  ROUTE_PROTOCOL,
  type VxlanLink,
  type WireguardLink,
  type WireguardPeer,
} from './desired-network.ts';

/** What the kernel has under the names of the pod network. */
export interface ObservedNetwork {
  readonly links: readonly ObservedLink[];
  readonly routes: readonly Route[];
  readonly neighbors: readonly Neighbor[];
  readonly forwarding: readonly ForwardingEntry[];
  /** The keys and the port of the WireGuard link; `undefined` without one. */
  readonly wireguard: { readonly publicKey: string; readonly port: number } | undefined;
  readonly wireguardPeers: readonly WireguardPeer[];
}

/** A link of the agent as the kernel reports it. */
export interface ObservedLink {
  readonly name: string;
  readonly mtu: number;
  readonly isUp: boolean;
  /** The addresses with their prefix lengths, without link-local ones. */
  readonly addresses: readonly string[];
  /** The settings of a VXLAN link; `undefined` for a link of another kind. */
  readonly vxlan: Omit<VxlanLink, 'kind' | 'name' | 'mtu'> | undefined;
}

/** Lines for `ip -batch`, in two parts, between which a WireGuard link is created, and lines for `bridge -batch`. */
export interface Commands {
  readonly before: readonly string[];
  /** The WireGuard link does not exist, and `ip` alone cannot always create it. */
  readonly createsWireguard: boolean;
  readonly ip: readonly string[];
  readonly bridge: readonly string[];
  /** Arguments of `wg set` after the name of the link. */
  readonly wireguard: readonly string[];
}

/** Whether there is nothing to change. */
export const isEmpty = ({ before, createsWireguard, ip, bridge, wireguard }: Commands): boolean =>
  !createsWireguard && before.length + ip.length + bridge.length + wireguard.length === 0;

/** Returns the commands that turn the observed state into the desired one. */
export function commandsFor(desired: DesiredNetwork, observed: ObservedNetwork): Commands {
  const { link } = desired;
  const found = observed.links.find(({ name }) => name === link?.name);
  const fits = found !== undefined && link !== undefined && linkFits(link, found);
  const removedLinks = observed.links.filter(({ name }) => name !== link?.name || !fits);
  const before = [
    ...observed.routes
      .filter(
        (route) => !removedLinks.some(({ name }) => name === route.device) && !has(desired.routes, route, routeKey),
      )
      .map((route) => `route del ${route.destination} ${routePlace(route)}`),
    ...removedLinks.map(({ name }) => `link del dev ${name}`),
    ...(link?.kind === 'vxlan' && !fits ? [createVxlan(link)] : []),
  ];
  // The addresses and routes of a removed link are gone with it.
  const remaining = fits ? observed : EMPTY;
  const routes = observed.routes.filter((route) => !removedLinks.some(({ name }) => name === route.device));
  return {
    before,
    createsWireguard: link?.kind === 'wireguard' && !fits,
    ip:
      link === undefined
        ? addedRoutes(desired, routes)
        : [...linkCommands(desired, fits ? found : undefined, remaining), ...addedRoutes(desired, routes)],
    bridge: link === undefined ? [] : forwardingCommands(desired, remaining, link.name),
    wireguard: link?.kind === 'wireguard' ? wireguardArguments(link, desired.wireguardPeers, remaining) : [],
  };
}

const EMPTY: ObservedNetwork = {
  links: [],
  routes: [],
  neighbors: [],
  forwarding: [],
  wireguard: undefined,
  wireguardPeers: [],
};

function linkFits(link: NonNullable<DesiredNetwork['link']>, found: ObservedLink): boolean {
  if (link.kind === 'wireguard') return found.vxlan === undefined;
  const { vxlan } = found;
  return (
    vxlan !== undefined &&
    vxlan.id === link.id &&
    vxlan.port === link.port &&
    vxlan.local === link.local &&
    vxlan.device === link.device
  );
}

/** Returns the command that creates a VXLAN device. `nolearning` means that the agent alone decides where frames go. */
const createVxlan = ({ name, mac, mtu, id, port, local, device }: VxlanLink): string =>
  `link add ${name} address ${mac} mtu ${mtu} type vxlan id ${id} dstport ${port} local ${local} dev ${device} nolearning`;

/** Returns the commands that change the link. `found` is `undefined` if it was created just now. */
function linkCommands(desired: DesiredNetwork, found: ObservedLink | undefined, remaining: ObservedNetwork): string[] {
  const { link, addresses, neighbors } = desired;
  if (link === undefined) return [];
  const { name, mtu } = link;
  const mac =
    link.kind === 'vxlan' && found?.vxlan !== undefined && found.vxlan.mac !== link.mac ? ` address ${link.mac}` : '';
  const size = (found === undefined ? link.kind === 'wireguard' : found.mtu !== mtu) ? ` mtu ${mtu}` : '';
  const up = found?.isUp === true ? '' : ' up';
  const currentAddresses = found?.addresses ?? [];
  return [
    ...(mac + size + up === '' ? [] : [`link set dev ${name}${mac}${size}${up}`]),
    ...currentAddresses
      .filter((address) => !addresses.includes(address))
      .map((address) => `address del ${address} dev ${name}`),
    ...addresses
      .filter((address) => !currentAddresses.includes(address))
      .map((address) => `address add ${address} dev ${name}${address.includes(':') ? ' nodad' : ''}`),
    ...remaining.neighbors
      .filter((one) => !has(neighbors, one, ({ address }) => address))
      .map(({ address }) => `neighbor del ${address} dev ${name}`),
    ...neighbors
      .filter((one) => !has(remaining.neighbors, one, neighborKey))
      .map(({ address, mac: lladdr }) => `neighbor replace ${address} lladdr ${lladdr} dev ${name} nud permanent`),
  ];
}

/**
 * Returns the commands that add the missing routes. Adding fails if an administrator has a route to the same destination, which
 * is thus never replaced.
 */
function addedRoutes({ routes }: DesiredNetwork, existing: readonly Route[]): string[] {
  return routes
    .filter((route) => !has(existing, route, routeKey))
    .map((route) => {
      const source = route.source === '' ? '' : ` src ${route.source}`;
      return `route add ${route.destination} ${routePlace(route)}${route.onlink ? ' onlink' : ''}${source}`;
    });
}

function forwardingCommands({ forwarding }: DesiredNetwork, remaining: ObservedNetwork, name: string): string[] {
  return [
    ...remaining.forwarding
      .filter((one) => !has(forwarding, one, forwardingKey))
      .map(({ mac, destination }) => `fdb del ${mac} dev ${name} dst ${destination} self`),
    ...forwarding
      .filter((one) => !has(remaining.forwarding, one, forwardingKey))
      .map(({ mac, destination }) => `fdb replace ${mac} dev ${name} dst ${destination} self permanent`),
  ];
}

function wireguardArguments(
  { keys: ownKeys, port }: WireguardLink,
  desired: readonly WireguardPeer[],
  { wireguard, wireguardPeers: existing }: ObservedNetwork,
): string[] {
  const keys = new Set(desired.map(({ publicKey }) => publicKey));
  return [
    ...(wireguard?.port === port ? [] : ['listen-port', String(port)]),
    ...(wireguard?.publicKey === ownKeys.publicKey ? [] : ['private-key', ownKeys.privateKeyFile]),
    ...existing
      .filter(({ publicKey }) => !keys.has(publicKey))
      .flatMap(({ publicKey }) => ['peer', publicKey, 'remove']),
    ...desired
      .filter((peer) => !has(existing, peer, wireguardKey))
      .flatMap(({ publicKey, endpoint, allowedIps }) => [
        'peer',
        publicKey,
        'endpoint',
        endpoint,
        'allowed-ips',
        allowedIps.join(','),
      ]),
  ];
}

function has<T>(list: readonly T[], item: T, key: (item: T) => string): boolean {
  const wanted = key(item);
  return list.some((one) => key(one) === wanted);
}

const routePlace = ({ gateway, device }: Route): string =>
  `${gateway === '' ? '' : `via ${gateway} `}dev ${device} proto ${ROUTE_PROTOCOL}`;
const routeKey = ({ destination, device, gateway, source }: Route): string =>
  [destination, device, gateway, source].join(' ');
const neighborKey = ({ address, mac }: Neighbor): string => `${address} ${mac}`;
const forwardingKey = ({ mac, destination }: ForwardingEntry): string => `${mac} ${destination}`;
const wireguardKey = ({ publicKey, endpoint, allowedIps }: WireguardPeer): string =>
  [publicKey, endpoint, ...allowedIps.toSorted()].join(' ');

/** Returns the commands that remove everything of the pod network from the kernel, except rules. */
export function removalCommands(observed: ObservedNetwork): readonly string[] {
  return [
    ...observed.routes
      .filter(({ device }) => !device.startsWith(LINK_PREFIX))
      .map((route) => `route del ${route.destination} ${routePlace(route)}`),
    ...observed.links.map(({ name }) => `link del dev ${name}`),
  ];
}
