/**
 * Holds the ports of all services of one address family, and updates those of the services that changed.
 *
 * If several services claim the same address and port, the oldest one gets it; a cluster IP belongs to its service before
 * all others. Otherwise a new service could take the traffic of another one, such as queries to the name server. Beyond its
 * cluster IPs, no service gets what the cluster itself needs: the addresses of API servers, the ports of etcd on their
 * hosts, and the ports of agents and of the pod network; nor the ports on which processes of this host listen, at the
 * addresses of the node.
 */
import type { Service } from '../../../api/kinds/kinds.ts';
import type { Slice } from '../../../api/machinery/time-slice.ts';
import { ETCD_CLIENT_PORT, ETCD_PEER_PORT } from '../../../api/meta/etcd-ports.ts';
import type { Family } from './addresses.ts';
import { type Place, portsOf, type ServicePort, type SlicesOf } from './service-ports.ts';

interface ServiceTableOptions {
  readonly family: Family;
  /** Returns the service with the key `namespace/name`. */
  readonly service: (key: string) => Service | undefined;
  readonly slicesOf: SlicesOf;
  readonly place: () => Place;
}

/** The ports of one service before and after a change. */
export interface PortChange {
  readonly before: readonly ServicePort[];
  readonly after: readonly ServicePort[];
}

/** Removes all former ports before it adds the present ones, because a port may pass from one service to another. */
export function* replacePorts(
  changes: readonly PortChange[],
  slice: Slice,
  { remove, add }: { readonly remove: (port: ServicePort) => void; readonly add: (port: ServicePort) => void },
): Generator<void, void> {
  for (const { before } of changes) {
    before.forEach(remove);
    if (slice.isSpent) yield;
  }
  for (const { after } of changes) {
    after.forEach(add);
    if (slice.isSpent) yield;
  }
}

const NO_PORTS: readonly ServicePort[] = [];
/** The service whose endpoints are the API servers. */
const API_SERVERS = 'default/kubernetes';
/** The ports of etcd, which often runs on the hosts of the API servers. */
const ETCD_PORTS = [ETCD_CLIENT_PORT, ETCD_PEER_PORT] as const;

/** Owns the ports of one family and the claims on their addresses. */
export class ServiceTable {
  readonly #options: ServiceTableOptions;
  /** The addresses and ports that services claim. */
  readonly #claimed = new Map<string, readonly ServicePort[]>();
  /** The ports that `#granted` returned for each service. */
  readonly #ports = new Map<string, readonly ServicePort[]>();
  /** The ports and the keys of their services, by what they claim: an address and port, or a node port. */
  readonly #claimants = new Map<string, Map<ServicePort, string>>();
  /** The services by their cluster IPs. */
  readonly #clusterIps = new Map<string, Set<string>>();
  /** The services that claim an address as external IP or load balancer IP. */
  readonly #external = new Map<string, Set<string>>();
  /** `ADDRESS PROTOCOL PORT` of each API server, and of etcd on its host. */
  #apiServers: ReadonlySet<string> = new Set();

  constructor(options: ServiceTableOptions) {
    this.#options = options;
  }

  /** Recomputes these services, and those that claim the same addresses. Yields after each service. */
  *update(keys: Iterable<string>): Generator<void, PortChange[]> {
    const affected = new Set<string>();
    for (const key of keys) {
      affected.add(key);
      for (const rival of this.#replaceClaims(key)) affected.add(rival);
      yield;
    }
    const changes: PortChange[] = [];
    for (const key of affected) {
      const before = this.#ports.get(key) ?? NO_PORTS;
      const after = this.#granted(key);
      if (after.length === 0) this.#ports.delete(key);
      else this.#ports.set(key, after);
      if (before.length > 0 || after.length > 0) changes.push({ before, after });
      yield;
    }
    return changes;
  }

  /** Yields the ports of all services. */
  *ports(): Generator<ServicePort, undefined> {
    for (const ports of this.#ports.values()) yield* ports;
  }

  /** Replaces the claims of a service. Returns the services that compete with its old or its new claims. */
  #replaceClaims(key: string): Set<string> {
    const { family, service, slicesOf, place } = this.#options;
    const object = service(key);
    const rivals = new Set<string>();
    for (const port of this.#claimed.get(key) ?? NO_PORTS) this.#withdraw(key, port, rivals);
    const claimed = object === undefined ? NO_PORTS : portsOf(object, slicesOf, family, place());
    if (claimed.length === 0) this.#claimed.delete(key);
    else this.#claimed.set(key, claimed);
    for (const port of claimed) this.#claim(key, port, rivals);
    if (key === API_SERVERS) this.#readApiServers(claimed, rivals);
    return rivals;
  }

  #readApiServers(claimed: readonly ServicePort[], rivals: Set<string>): void {
    const servers = new Set(
      claimed.flatMap(({ protocol, cluster }) =>
        cluster.flatMap(({ ip, port }) => [
          `${ip} ${protocol} ${port}`,
          ...ETCD_PORTS.map((etcd) => `${ip} TCP ${etcd}`),
        ]),
      ),
    );
    if (servers.symmetricDifference(this.#apiServers).size === 0) return;
    this.#apiServers = servers;
    for (const services of this.#external.values()) for (const service of services) rivals.add(service);
  }

  #claim(key: string, port: ServicePort, rivals: Set<string>): void {
    for (const claim of claimsOf(port)) {
      const claimants = this.#claimants.get(claim);
      if (claimants === undefined) this.#claimants.set(claim, new Map([[port, key]]));
      else {
        for (const rival of claimants.values()) rivals.add(rival);
        claimants.set(port, key);
      }
    }
    if (addTo(this.#clusterIps, port.clusterIp, key))
      for (const rival of this.#external.get(port.clusterIp) ?? []) rivals.add(rival);
    for (const address of externalOf(port)) addTo(this.#external, address, key);
  }

  #withdraw(key: string, port: ServicePort, rivals: Set<string>): void {
    for (const claim of claimsOf(port)) {
      const claimants = this.#claimants.get(claim);
      claimants?.delete(port);
      if (claimants?.size === 0) this.#claimants.delete(claim);
      for (const rival of claimants?.values() ?? []) rivals.add(rival);
    }
    if (removeFrom(this.#clusterIps, port.clusterIp, key))
      for (const rival of this.#external.get(port.clusterIp) ?? []) rivals.add(rival);
    for (const address of externalOf(port)) removeFrom(this.#external, address, key);
  }

  /**
   * Returns the ports of a service without the addresses and node ports that other services, the cluster or processes of
   * this host have.
   */
  #granted(key: string): readonly ServicePort[] {
    const holds = (port: ServicePort, claim: string): boolean => {
      const claimants = this.#claimants.get(claim);
      return claimants === undefined || claimants.size === 1 || firstOf(claimants.keys()) === port;
    };
    const {
      reservedPorts = [],
      listeningPorts = [],
      nodeIps = [],
      externalIps: nodeExternalIps = [],
    } = this.#options.place();
    const reserved = new Set(reservedPorts);
    const listening = new Set(listeningPorts);
    const ofNode = new Set([...nodeIps, ...nodeExternalIps]);
    return (this.#claimed.get(key) ?? NO_PORTS).flatMap((port) => {
      if (!holds(port, clusterClaim(port))) return [];
      const isFree = (address: string): boolean =>
        !this.#clusterIps.has(address) &&
        !this.#apiServers.has(addressClaim(port, address)) &&
        !reserved.has(`${port.protocol} ${port.port}`) &&
        !(ofNode.has(address) && listening.has(`${port.protocol} ${port.port}`));
      const isGranted = (address: string): boolean => isFree(address) && holds(port, addressClaim(port, address));
      const externalIps = port.externalIps.filter(isGranted);
      const loadBalancerIps = port.loadBalancerIps.filter(
        (address) => isGranted(address) && !externalIps.includes(address),
      );
      const hasNodePort = port.nodePort !== 0 && !reserved.has(nodePortClaim(port)) && holds(port, nodePortClaim(port));
      const nodePort = hasNodePort ? port.nodePort : 0;
      return [{ ...port, externalIps, loadBalancerIps, nodePort }];
    });
  }
}

const externalOf = ({ externalIps, loadBalancerIps }: ServicePort): Set<string> =>
  new Set([...externalIps, ...loadBalancerIps]);
const addressClaim = ({ protocol, port }: ServicePort, address: string): string => `${address} ${protocol} ${port}`;
const clusterClaim = (port: ServicePort): string => `cluster ${addressClaim(port, port.clusterIp)}`;
const nodePortClaim = ({ protocol, nodePort }: ServicePort): string => `${protocol} ${nodePort}`;

function claimsOf(port: ServicePort): string[] {
  const claims = [...externalOf(port)].map((address) => addressClaim(port, address));
  claims.push(clusterClaim(port));
  return port.nodePort === 0 ? claims : [...claims, nodePortClaim(port)];
}

function firstOf(ports: Iterable<ServicePort>): ServicePort | undefined {
  let first: ServicePort | undefined;
  for (const port of ports)
    if (first === undefined || port.since < first.since || (port.since === first.since && port.id < first.id))
      first = port;
  return first;
}

/** Adds the key to the set of the name. Returns whether it is the first of its set. */
function addTo(sets: Map<string, Set<string>>, name: string, key: string): boolean {
  const set = sets.get(name);
  if (set !== undefined) {
    set.add(key);
    return false;
  }
  sets.set(name, new Set([key]));
  return true;
}

/** Removes the key from the set of the name. Returns whether it was the last of its set. */
function removeFrom(sets: Map<string, Set<string>>, name: string, key: string): boolean {
  const set = sets.get(name);
  if (set?.delete(key) !== true || set.size > 0) return false;
  sets.delete(name);
  return true;
}
