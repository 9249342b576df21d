/** Computes at which addresses a service of type LoadBalancer is reachable, and which ports it needs there. */
import { isDeepStrictEqual } from 'node:util';
import type { EndpointSlice, Node, Service } from '../../../api/kinds/kinds.ts';
import {
  canonicalIp,
  isLinkLocalUnicast,
  isLoopback,
  isMulticast,
  isUnspecified,
  parseIp,
} from '../../../api/meta/ip-addresses.ts';
import { LISTENING_PORTS } from '../../../api/meta/orchlet-annotations.ts';

/** The class of services that this controller serves, beside those without a class. */
const LOAD_BALANCER_CLASS = 'orchlet.local/service-lb';
/** Nodes with this label receive no traffic of load balancers. */
const EXCLUDED = 'node.kubernetes.io/exclude-from-external-load-balancers';
/** The most ports of a node's annotation that are read. */
const MAX_LISTENERS = 256;
const BEING_REMOVED = 'ToBeDeletedByClusterAutoscaler';

/** Whether this controller serves the service, and not another one. */
export function isOurs({ metadata, spec }: Service): boolean {
  const { type, loadBalancerClass = LOAD_BALANCER_CLASS } = spec ?? {};
  return (
    type === 'LoadBalancer' && loadBalancerClass === LOAD_BALANCER_CLASS && metadata.deletionTimestamp === undefined
  );
}

/** Returns what a service occupies on every node, for example `TCP 80`. */
export const portsOf = ({ spec }: Service): string[] =>
  (spec?.ports ?? []).map(({ protocol = 'TCP', port }) => `${protocol} ${port}`);

/** A node with its addresses, and the ports that are in use there. */
interface NodeAddresses {
  readonly name: string;
  readonly addresses: readonly string[];
  /** The port of the agent's server, which no service may have at this node. */
  readonly agentPort: number;
  /** The ports on which processes of its host listen, such as `TCP 22`. */
  readonly listeningPorts: readonly string[];
}

/**
 * The nodes that receive traffic of load balancers. Nodes change often, because of their heartbeats, so that a change reads the
 * changed node alone.
 */
export class BalancedNodes {
  readonly #byName = new Map<string, NodeAddresses>();
  #sorted: readonly NodeAddresses[] | undefined;

  /** The nodes in the order of their names. */
  get all(): readonly NodeAddresses[] {
    this.#sorted ??= [...this.#byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    return this.#sorted;
  }

  /** Takes a new or changed node. Returns whether this may change the addresses or ports of services. */
  update(node: Node): boolean {
    const current = balancedNode(node);
    if (current === undefined) return this.remove(node);
    if (isDeepStrictEqual(current, this.#byName.get(current.name))) return false;
    this.#byName.set(current.name, current);
    this.#sorted = undefined;
    return true;
  }

  /** Returns whether the node received traffic. */
  remove({ metadata }: Node): boolean {
    if (!this.#byName.delete(metadata.name ?? '')) return false;
    this.#sorted = undefined;
    return true;
  }
}

/** Returns `undefined` for a node that receives no traffic of load balancers. */
function balancedNode({ metadata, spec, status }: Node): NodeAddresses | undefined {
  const isBalanced =
    metadata.labels?.[EXCLUDED] === undefined &&
    metadata.deletionTimestamp === undefined &&
    !(spec?.taints ?? []).some(({ key }) => key === BEING_REMOVED) &&
    (status?.conditions ?? []).some((condition) => condition.type === 'Ready' && condition.status === 'True');
  if (!isBalanced) return undefined;
  return {
    name: metadata.name ?? '',
    addresses: reachableAddresses(status?.addresses ?? []),
    agentPort: status?.daemonEndpoints?.kubeletEndpoint?.Port ?? 0,
    listeningPorts: (metadata.annotations?.[LISTENING_PORTS] ?? '').split(',').slice(0, MAX_LISTENERS),
  };
}

/**
 * Returns the external addresses of each family, or the internal ones if the node has none. Special addresses are left out,
 * because nodes write their addresses: with a loopback address, every node would redirect its own traffic to a service.
 */
function reachableAddresses(addresses: NonNullable<NonNullable<Node['status']>['addresses']>): string[] {
  const ofType = (wanted: string, isV6: boolean): string[] =>
    addresses
      .filter(({ type, address }) => type === wanted && address.includes(':') === isV6)
      .flatMap(({ address }) => (isNodeAddress(address) ? (canonicalIp(address) ?? []) : []));
  return [false, true].flatMap((isV6) => {
    const external = ofType('ExternalIP', isV6);
    return external.length > 0 ? external : ofType('InternalIP', isV6);
  });
}

function isNodeAddress(address: string): boolean {
  const ip = parseIp(address);
  if (ip === undefined) return false;
  return ![isLoopback, isLinkLocalUnicast, isMulticast, isUnspecified].some((isSpecial) => isSpecial(ip));
}

/** Returns the names of the nodes with a ready endpoint that does not terminate. */
export function nodesWithEndpoints(slices: readonly EndpointSlice[]): Set<string> {
  return new Set(
    slices
      .flatMap(({ endpoints = [] }) => endpoints)
      .filter(({ conditions }) => conditions?.ready !== false && conditions?.terminating !== true)
      .flatMap(({ nodeName }) => nodeName ?? []),
  );
}

/** Returns the nodes at which neither the agent nor the host uses a port of the service. */
export function nodesFor(service: Service, nodes: readonly NodeAddresses[]): NodeAddresses[] {
  const ports = new Set(portsOf(service));
  return nodes.filter(
    ({ agentPort, listeningPorts }) => ![`TCP ${agentPort}`, ...listeningPorts].some((port) => ports.has(port)),
  );
}

/**
 * Returns the addresses of the service, with the addresses of its first family first. With `externalTrafficPolicy: Local`, only
 * nodes with an endpoint count, because other nodes drop the traffic. `spec.loadBalancerIP` selects one of the addresses.
 */
export function balancerAddresses(
  { spec }: Service,
  nodes: readonly NodeAddresses[],
  withEndpoints: () => ReadonlySet<string>,
): string[] {
  const isLocal = spec?.externalTrafficPolicy === 'Local';
  const chosen = isLocal ? nodes.filter(({ name }) => withEndpoints().has(name)) : nodes;
  const wanted = spec?.loadBalancerIP ?? '';
  const all = new Set(chosen.flatMap(({ addresses }) => addresses));
  const selected = [...all].filter((address) => wanted === '' || address === canonicalIp(wanted));
  return (spec?.ipFamilies ?? ['IPv4']).flatMap((family) =>
    selected.filter((address) => address.includes(':') === (family === 'IPv6')),
  );
}
